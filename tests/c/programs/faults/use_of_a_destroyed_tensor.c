/* says: aclnnAdaptiveAvgPool3dBackward: gradOutput was destroyed; it must be a live aclTensor of aclCreateTensor. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    uint64_t size;
    aclOpExecutor *executor;
    begin();
    aclTensor *grad = volume(2, 1, 1, 3, numbers(6)), *out = volume(2, 1, 5, 7, numbers(70));
    NEED(aclDestroyTensor(grad));
    return aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad, out, out, &size, &executor) != 0;
}
