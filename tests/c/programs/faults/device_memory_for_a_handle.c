/* says: aclDestroyTensor: tensor is 0x*, the address of device memory; it must be a live aclTensor of aclCreateTensor. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    return aclDestroyTensor((const aclTensor *)numbers(3)) != 0;
}
