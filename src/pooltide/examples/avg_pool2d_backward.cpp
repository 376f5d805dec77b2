// Gradient of 2-D average pooling, in C++: kernel 3, stride 2, padding 1, (1,2,4,6) back to (1,2,7,11).
#include <vector>

#include "aclnnop/aclnn_avgpool2d_backward.h"
#include "steps.h"

int main() {
    const int64_t small[] = {1, 2, 4, 6}, large[] = {1, 2, 7, 11};
    const int64_t three[] = {3}, two[] = {2}, one[] = {1};
    std::vector<float> grad(2 * 4 * 6), result(2 * 7 * 11);
    for (size_t i = 0; i < grad.size(); i++) grad[i] = 9.0f * static_cast<float>(i * 7 % 23);

    aclrtStream stream = start();
    void *grad_block = upload(grad.data(), grad.size() * sizeof(float));
    void *out_block = allocate(result.size() * sizeof(float));
    aclTensor *grad_output = describe(small, 4, ACL_FLOAT, ACL_FORMAT_NCHW, grad_block);
    aclTensor *self = describe(large, 4, ACL_FLOAT, ACL_FORMAT_NCHW, nullptr);  // only its shape matters
    aclTensor *grad_input = describe(large, 4, ACL_FLOAT, ACL_FORMAT_NCHW, out_block);
    aclIntArray *kernel = aclCreateIntArray(three, 1), *stride = aclCreateIntArray(two, 1);
    aclIntArray *padding = aclCreateIntArray(one, 1);

    const bool ceil_mode = false, count_include_pad = true;
    const int64_t no_divisor = 0;
    const int8_t keep_dtype = 0;
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    MUST(aclnnAvgPool2dBackwardGetWorkspaceSize(grad_output, self, kernel, stride, padding, ceil_mode,
                                                count_include_pad, no_divisor, keep_dtype, grad_input, &size,
                                                &executor));
    void *workspace = allocate(size);
    MUST(aclnnAvgPool2dBackward(workspace, size, executor, stream));
    MUST(aclrtSynchronizeStream(stream));

    download(result.data(), out_block, result.size() * sizeof(float));
    print(result.data(), 2 * 7, 11);

    for (aclTensor *tensor : {grad_output, self, grad_input}) aclDestroyTensor(tensor);
    for (aclIntArray *array : {kernel, stride, padding}) aclDestroyIntArray(array);
    for (void *block : {grad_block, out_block, workspace})
        if (block != nullptr) aclrtFree(block);
    finish(stream);
    return 0;
}
