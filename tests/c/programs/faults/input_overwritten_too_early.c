/* says: aclrtMemcpy: dst is 0x*, memory that aclnnAdaptiveAvgPool3dBackward reads (gradOutput) on stream 1, and the program has not waited for that; call aclrtSynchronizeStream first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    const float next[] = {2, 3, 5, 7, 11, 13};
    begin();
    void *block = numbers(6);
    aclTensor *grad = volume(2, 1, 1, 3, block), *out = volume(2, 1, 5, 7, device(280));
    NEED(aclnnAdaptiveAvgPool3dBackward(NULL, 0, plan(grad, out, out), stream));
    return aclrtMemcpy(block, sizeof next, next, sizeof next, ACL_MEMCPY_HOST_TO_DEVICE) != 0;
}
