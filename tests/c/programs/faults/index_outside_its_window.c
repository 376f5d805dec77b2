/* says: aclnnAdaptiveMaxPool2dBackward: indices[0, 0, 1, 0] is 3, a cell outside the window of that place; it must be an index that the forward returned.
   warn: goes on */
#include "../setup.h"
#include "aclnnop/aclnn_adaptive_max_pool2d_backward.h"

int main(void) {
    const int64_t small[] = {1, 1, 2, 2}, large[] = {1, 1, 4, 4};
    const int32_t cells[] = {0, 3, 3, 15};
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    begin();
    void *block = device(sizeof cells), *output = device(64);
    NEED(aclrtMemcpy(block, sizeof cells, cells, sizeof cells, ACL_MEMCPY_HOST_TO_DEVICE));
    aclTensor *grad = aclCreateTensor(small, 4, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, small, 4, numbers(4));
    aclTensor *indices = aclCreateTensor(small, 4, ACL_INT32, NULL, 0, ACL_FORMAT_ND, small, 4, block);
    aclTensor *out = aclCreateTensor(large, 4, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, large, 4, output);
    NEED(aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(grad, out, indices, out, &size, &executor));
    NEED(aclnnAdaptiveMaxPool2dBackward(size ? device(size) : NULL, size, executor, stream));
    return aclrtSynchronizeStream(stream) != 0;
}
