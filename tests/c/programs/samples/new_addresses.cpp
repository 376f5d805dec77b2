// One executor for many calls: phase one runs once, and each call gets new addresses.
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
#include "threads.h"

static int work(int thread) {
    const int64_t small[] = {1, 1, 1, 2}, large[] = {1, 1, 1, 4};
    const int rounds = 25;
    aclrtStream stream;
    CHECK(aclrtCreateStream(&stream));
    void *grads = nullptr, *results = nullptr;
    CHECK(aclrtMalloc(&grads, rounds * 64, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&results, rounds * 64, ACL_MEM_MALLOC_HUGE_FIRST));
    std::vector<float> given(rounds * 16, 0.0f), got(rounds * 16, 0.0f);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < 2; i++) given[static_cast<size_t>(round * 16 + i)] = static_cast<float>(2 * (round + i * 3 + thread));
    CHECK(aclrtMemcpy(grads, rounds * 64, given.data(), rounds * 64, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclrtMemset(results, rounds * 64, 0, rounds * 64));
    aclTensor *grad = aclCreateTensor(small, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, small, 4, grads);
    aclTensor *out = aclCreateTensor(large, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, large, 4, results);
    uint64_t size = 0, dims = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad, out, out, &size, &executor));
    CHECK(aclSetAclOpExecutorRepeatable(executor));
    for (int round = 0; round < rounds; round++) {
        CHECK(aclSetInputTensorAddr(executor, 0, grad, static_cast<char *>(grads) + round * 64));
        CHECK(aclSetOutputTensorAddr(executor, 0, out, static_cast<char *>(results) + round * 64));
        CHECK(aclnnAdaptiveAvgPool3dBackward(nullptr, size, executor, stream));
    }
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(got.data(), rounds * 64, results, rounds * 64, ACL_MEMCPY_DEVICE_TO_HOST));
    int wrong = 0;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < 4; i++) wrong += got[static_cast<size_t>(round * 16 + i)] != given[static_cast<size_t>(round * 16 + i / 2)] / 2;
    int64_t *shape = nullptr;
    CHECK(aclGetViewShape(out, &shape, &dims));
    wrong += dims != 4 || shape[3] != 4;
    delete[] shape;
    CHECK(aclDestroyAclOpExecutor(executor));
    aclDestroyTensor(grad);
    aclDestroyTensor(out);
    CHECK(aclrtFree(grads));
    CHECK(aclrtFree(results));
    CHECK(aclrtDestroyStream(stream));
    return wrong;
}
