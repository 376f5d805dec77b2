/* says: aclrtFree: devPtr is 0x*, memory that aclnnAdaptiveAvgPool3dBackward writes (out) on stream 1, and the program has not waited for that; call aclrtSynchronizeStream first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    void *block = device(280);
    aclTensor *grad = volume(2, 1, 1, 3, numbers(6)), *out = volume(2, 1, 5, 7, block);
    NEED(aclnnAdaptiveAvgPool3dBackward(NULL, 0, plan(grad, out, out), stream));
    return aclrtFree(block) != 0;
}
