/* says: aclnnAvgPool2dBackward: workspace is in a block at 0x*, memory that aclnnAvgPool2dBackward writes (workspace) on stream 1, and stream 2 does not wait for that; call aclrtRecordEvent there and aclrtStreamWaitEvent here first.
   warn: goes on */
#include "../setup.h"

int main(void) {
    uint64_t size = 0;
    aclrtStream other = NULL;
    begin();
    NEED(aclrtCreateStream(&other));
    aclOpExecutor *first = plan_with_workspace(&size), *second = plan_with_workspace(&size);
    void *workspace = device(size);
    NEED(aclnnAvgPool2dBackward(workspace, size, first, stream));
    return aclnnAvgPool2dBackward(workspace, size, second, other) != 0;
}
