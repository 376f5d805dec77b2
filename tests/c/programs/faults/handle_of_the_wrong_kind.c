/* says: aclDestroyIntArray: array is an aclTensor; it must be a live aclIntArray of aclCreateIntArray. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    return aclDestroyIntArray((const aclIntArray *)volume(2, 3, 5, 7, NULL)) != 0;
}
