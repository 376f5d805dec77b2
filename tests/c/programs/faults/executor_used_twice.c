/* says: aclnnAdaptiveAvgPool3dBackward: executor has served its one call; it must be a new one, or made repeatable by aclSetAclOpExecutorRepeatable before its first use. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    aclTensor *grad = volume(2, 1, 1, 3, numbers(6)), *out = volume(2, 1, 5, 7, numbers(70));
    aclOpExecutor *executor = plan(grad, out, out);
    NEED(aclnnAdaptiveAvgPool3dBackward(NULL, 0, executor, stream));
    return aclnnAdaptiveAvgPool3dBackward(NULL, 0, executor, stream) != 0;
}
