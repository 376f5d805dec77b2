/* says: aclnnAvgPool2dBackward: workspace is 0x*, 0 bytes into a block of 7 bytes at 0x*, and the call needs * bytes; it must lie inside one block. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    uint64_t size = 0;
    begin();
    aclOpExecutor *executor = plan_with_workspace(&size);
    return aclnnAvgPool2dBackward(device(7), size, executor, stream) != 0;
}
