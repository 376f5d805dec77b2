/* says: aclFinalize: 1 unused executor is still live: <aclOpExecutor of aclnnAdaptiveAvgPool3dBackward: *>, made at *; each must be run by its operator's phase two, or destroyed by aclDestroyAclOpExecutor.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    aclTensor *grad = volume(2, 1, 1, 3, NULL), *out = volume(2, 1, 5, 7, NULL);
    plan(grad, out, out);
    aclDestroyTensor(grad);
    aclDestroyTensor(out);
    NEED(aclrtDestroyStream(stream));
    return aclFinalize() != 0;
}
