/* says: aclrtMemcpyAsync: src is 0x*, memory that aclnnAdaptiveAvgPool3dBackward writes (out) on stream 1, and stream 2 does not wait for that; call aclrtRecordEvent there and aclrtStreamWaitEvent here first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    static float host[70];
    aclrtStream other;
    begin();
    NEED(aclrtCreateStream(&other));
    void *block = device(sizeof host);
    aclTensor *grad = volume(2, 1, 1, 3, numbers(6)), *out = volume(2, 1, 5, 7, block);
    NEED(aclrtMemset(block, 280, 0, 280)); /* so that a copy that loses the race reads written memory */
    NEED(aclnnAdaptiveAvgPool3dBackward(NULL, 0, plan(grad, out, out), stream));
    int failed = aclrtMemcpyAsync(host, sizeof host, block, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST, other) != 0;
    NEED(aclrtSynchronizeDevice());
    return failed;
}
