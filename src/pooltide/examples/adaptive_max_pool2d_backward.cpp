// Gradient of 2-D adaptive max pooling, in C++: (1,2,2,3) back to (1,2,5,7), by indices into (5,7).
// The executor is made repeatable, and serves two gradients.
#include <vector>

#include "aclnnop/aclnn_adaptive_max_pool2d_backward.h"
#include "steps.h"

int main() {
    const int64_t small[] = {1, 2, 2, 3}, large[] = {1, 2, 5, 7};
    std::vector<float> grad(12), result(2 * 5 * 7);
    const std::vector<int64_t> index = {0, 11, 11, 28, 25, 34, 1, 10, 20, 22, 32, 27};  // h * 7 + w

    aclrtStream stream = start();
    const size_t grad_bytes = grad.size() * sizeof(float), result_bytes = result.size() * sizeof(float);
    void *grad_block = allocate(grad_bytes), *out_block = allocate(result_bytes);
    void *index_block = upload(index.data(), index.size() * sizeof(int64_t));
    aclTensor *grad_output = describe(small, 4, ACL_FLOAT, ACL_FORMAT_ND, grad_block);
    aclTensor *self = describe(large, 4, ACL_FLOAT, ACL_FORMAT_ND, nullptr);  // only its shape matters
    aclTensor *indices = describe(small, 4, ACL_INT64, ACL_FORMAT_ND, index_block);
    aclTensor *grad_input = describe(large, 4, ACL_FLOAT, ACL_FORMAT_ND, out_block);

    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    MUST(aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(grad_output, self, indices, grad_input, &size,
                                                        &executor));
    MUST(aclSetAclOpExecutorRepeatable(executor));
    void *workspace = allocate(size);
    for (int round = 1; round <= 2; round++) {
        for (size_t i = 0; i < grad.size(); i++) grad[i] = static_cast<float>(round * 100 + i * 5 % 13);
        MUST(aclrtMemcpy(grad_block, grad_bytes, grad.data(), grad_bytes, ACL_MEMCPY_HOST_TO_DEVICE));
        MUST(aclnnAdaptiveMaxPool2dBackward(workspace, size, executor, stream));
        MUST(aclrtSynchronizeStream(stream));
        download(result.data(), out_block, result_bytes);
        print(result.data(), 2 * 5, 7);
    }

    MUST(aclDestroyAclOpExecutor(executor));
    for (aclTensor *tensor : {grad_output, self, indices, grad_input}) aclDestroyTensor(tensor);
    for (void *block : {grad_block, index_block, out_block, workspace})
        if (block != nullptr) aclrtFree(block);
    finish(stream);
    return 0;
}
