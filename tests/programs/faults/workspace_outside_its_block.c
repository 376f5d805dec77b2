/* says: aclnnAvgPool2dBackward: workspace is 0x*, 0 bytes into a block of 7 bytes at 0x*, and the call needs * bytes; it must lie inside one block. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    const int64_t small[] = {2, 1, 1}, large[] = {2, 3, 5}, kernel[] = {3, 5}, none[] = {0};
    uint64_t size = 0;
    aclOpExecutor *executor;
    begin();
    aclTensor *grad = aclCreateTensor(small, 3, ACL_FLOAT, NULL, 0, ACL_FORMAT_NCL, small, 3, numbers(2));
    aclTensor *out = aclCreateTensor(large, 3, ACL_FLOAT, NULL, 0, ACL_FORMAT_NCL, large, 3, numbers(30));
    NEED(aclnnAvgPool2dBackwardGetWorkspaceSize(grad, out, aclCreateIntArray(kernel, 2), NULL,
                                                aclCreateIntArray(none, 1), false, true, 0, 3, out,
                                                &size, &executor));
    need(size > 7, "to need a workspace");
    return aclnnAvgPool2dBackward(device(7), size, executor, stream) != 0;
}
