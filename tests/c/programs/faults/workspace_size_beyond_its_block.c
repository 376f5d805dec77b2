/* says: aclnnAvgPool2dBackward: workspaceSize is *; it must be at most the * bytes that the block has from workspace on.
   warn: goes on */
#include "../setup.h"
int main(void) {
    uint64_t size = 0;
    begin();
    aclOpExecutor *executor = plan_with_workspace(&size);
    int failed = aclnnAvgPool2dBackward(device(size), size + 1, executor, stream) != 0;
    NEED(aclrtSynchronizeStream(stream));
    return failed;
}
