/* says: aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize: executor is null; it must point to memory for the result. [161001 ACLNN_ERR_PARAM_NULLPTR]
   warn: fails */
#include "../setup.h"
int main(void) {
    uint64_t size;
    begin();
    aclTensor *grad = volume(2, 1, 1, 3, NULL), *out = volume(2, 1, 5, 7, NULL);
    return aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad, out, out, &size, NULL) != 0;
}
