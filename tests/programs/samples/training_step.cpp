// A training step: the model is an average pool of learned planes, and the loss is half the squared distance
// to a target. The host computes the forward and updates the planes; the device computes the gradient.
#include <cmath>

#include "aclnnop/aclnn_avgpool2d_backward.h"
#include "threads.h"

static const int64_t C = 3, H = 6, W = 10, K = 2, HO = H / K, WO = W / K;

static float loss_and_gradient(const std::vector<float> &planes, const std::vector<float> &target, float *gradient) {
    float loss = 0;
    for (int64_t i = 0; i < C * HO * WO; i++) {
        const int64_t c = i / (HO * WO), y = i / WO % HO * K, x = i % WO * K;
        float mean = 0;
        for (int64_t k = 0; k < K * K; k++) mean += planes[static_cast<size_t>((c * H + y + k / K) * W + x + k % K)] / (K * K);
        gradient[i] = mean - target[static_cast<size_t>(i)];
        loss += gradient[i] * gradient[i] / 2;
    }
    return loss;
}

static int work(int thread) {
    const int64_t small[] = {C, HO, WO}, large[] = {C, H, W}, window[] = {K, K}, none[] = {0, 0};
    const size_t small_bytes = C * HO * WO * sizeof(float), large_bytes = C * H * W * sizeof(float);
    std::vector<float> planes(C * H * W, 0.0f), target(C * HO * WO);
    for (size_t i = 0; i < target.size(); i++) target[i] = static_cast<float>((i * 7 + static_cast<size_t>(thread)) % 11);
    aclrtStream stream;
    void *grad_block = nullptr, *out_block = nullptr, *host_grad = nullptr, *host_out = nullptr;
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtMalloc(&grad_block, small_bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&out_block, large_bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMallocHost(&host_grad, small_bytes));
    CHECK(aclrtMallocHost(&host_out, large_bytes));
    aclTensor *grad = aclCreateTensor(small, 3, ACL_FLOAT, nullptr, 0, ACL_FORMAT_NCL, small, 3, grad_block);
    aclTensor *out = aclCreateTensor(large, 3, ACL_FLOAT, nullptr, 0, ACL_FORMAT_NCL, large, 3, out_block);
    aclIntArray *kernel = aclCreateIntArray(window, 2), *padding = aclCreateIntArray(none, 2);
    float first = 0, last = 0;
    for (int step = 0; step < 40; step++) {
        last = loss_and_gradient(planes, target, static_cast<float *>(host_grad));
        if (step == 0) first = last;
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        void *workspace = nullptr;
        CHECK(aclrtMemcpyAsync(grad_block, small_bytes, host_grad, small_bytes, ACL_MEMCPY_HOST_TO_DEVICE, stream));
        CHECK(aclnnAvgPool2dBackwardGetWorkspaceSize(grad, out, kernel, kernel, padding, false, true, 0, 0, out, &size, &executor));
        if (size > 0) CHECK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclnnAvgPool2dBackward(workspace, size, executor, stream));
        CHECK(aclrtMemcpyAsync(host_out, large_bytes, out_block, large_bytes, ACL_MEMCPY_DEVICE_TO_HOST, stream));
        CHECK(aclrtSynchronizeStream(stream));
        for (size_t i = 0; i < planes.size(); i++) planes[i] -= 2.0f * static_cast<float *>(host_out)[i];
        if (workspace) CHECK(aclrtFree(workspace));
    }
    aclDestroyTensor(grad);
    aclDestroyTensor(out);
    aclDestroyIntArray(kernel);
    aclDestroyIntArray(padding);
    CHECK(aclrtFree(grad_block));
    CHECK(aclrtFree(out_block));
    CHECK(aclrtFreeHost(host_grad));
    CHECK(aclrtFreeHost(host_out));
    CHECK(aclrtDestroyStream(stream));
    return !(last < first * 1e-6f);
}
