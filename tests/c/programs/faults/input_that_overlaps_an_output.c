/* says: aclnnAdaptiveAvgPool3dBackward: gradOutput shares memory with out; it must have its own.
   warn: goes on */
#include "../setup.h"

int main(void) {
    begin();
    void *block = numbers(70);
    aclTensor *grad = volume(2, 1, 1, 3, block), *out = volume(2, 1, 5, 7, block);
    return aclnnAdaptiveAvgPool3dBackward(NULL, 0, plan(grad, out, out), stream) != 0;
}
