/* says: aclnnAvgPool2dBackward: workspaceSize is 1; it must be at least *, as phase one said. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    uint64_t size = 0;
    begin();
    aclOpExecutor *executor = plan_with_workspace(&size);
    return aclnnAvgPool2dBackward(device(size), 1, executor, stream) != 0;
}
