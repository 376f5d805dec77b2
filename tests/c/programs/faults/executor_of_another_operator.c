/* says: aclnnAvgPool2dBackward: executor was made by aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize; it must be made by aclnnAvgPool2dBackwardGetWorkspaceSize. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    aclTensor *grad = volume(2, 1, 1, 3, numbers(6)), *out = volume(2, 1, 5, 7, numbers(70));
    return aclnnAvgPool2dBackward(NULL, 0, plan(grad, out, out), stream) != 0;
}
