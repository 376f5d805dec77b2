/* says: aclrtFree: devPtr is 0x*, memory that aclnnAvgPool2dBackward writes (workspace) on stream 1, and the program has not waited for that; call aclrtSynchronizeStream first.
   warn: goes on */
#include "../setup.h"

int main(void) {
    uint64_t size = 0;
    begin();
    aclOpExecutor *executor = plan_with_workspace(&size);
    void *workspace = device(size);
    NEED(aclnnAvgPool2dBackward(workspace, size, executor, stream));
    return aclrtFree(workspace) != 0;
}
