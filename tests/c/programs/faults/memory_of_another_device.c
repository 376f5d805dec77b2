/* says: aclnnAdaptiveAvgPool3dBackward: gradOutput is 0x*, memory of device 0, and this thread uses device 1; call aclrtSetDevice(0) first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    void *memory = numbers_of_another_device(6);
    NEED(aclrtCreateStream(&stream));
    void *block = device(70 * sizeof(float));
    aclTensor *grad = volume(2, 1, 1, 3, memory), *out = volume(2, 1, 5, 7, block);
    int failed = aclnnAdaptiveAvgPool3dBackward(NULL, 0, plan(grad, out, out), stream) != 0;
    NEED(aclrtSynchronizeStream(stream));
    return failed;
}
