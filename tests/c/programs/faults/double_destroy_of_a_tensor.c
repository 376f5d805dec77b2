/* says: aclDestroyTensor: tensor was destroyed; it must be a live aclTensor of aclCreateTensor. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    aclTensor *tensor = volume(2, 3, 5, 7, NULL);
    NEED(aclDestroyTensor(tensor));
    return aclDestroyTensor(tensor) != 0;
}
