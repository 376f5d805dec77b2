/* says: aclnnAdaptiveAvgPool3dBackward: executor is 0x123457, which no call gave out; it must be a live aclOpExecutor of a GetWorkspaceSize call. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    return aclnnAdaptiveAvgPool3dBackward(NULL, 0, (aclOpExecutor *)0x123457, stream) != 0;
}
