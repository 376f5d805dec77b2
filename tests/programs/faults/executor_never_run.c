/* says: aclFinalize: 1 executor was never run: <aclOpExecutor of aclnnAdaptiveAvgPool3dBackward: *>; each must be run by its operator's phase two, or end by aclDestroyAclOpExecutor.*
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
