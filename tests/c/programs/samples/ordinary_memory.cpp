// Asynchronous copies of vectors, which are no memory of aclrtMallocHost: each call returns when its copy is
// done, so a vector may be changed, read or freed at once.
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
#include "threads.h"

static int work(int thread) {
    const int64_t small[] = {2, 1, 1, 3}, large[] = {2, 1, 4, 3};
    const size_t small_bytes = 6 * 4, large_bytes = 24 * 4;
    void *input, *output;
    int wrong = 0;
    aclrtStream stream;
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtMalloc(&input, small_bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&output, large_bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    aclTensor *grad = aclCreateTensor(small, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, small, 4, input);
    aclTensor *out = aclCreateTensor(large, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, large, 4, output);
    for (int round = 0; round < 20; round++) {
        const float value = static_cast<float>(4 * (round + thread + 1));
        {
            std::vector<float> host(6, value);
            CHECK(aclrtMemcpyAsync(input, small_bytes, host.data(), small_bytes, ACL_MEMCPY_HOST_TO_DEVICE, stream));
            for (float &each : host) each = -1;
        }
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        CHECK(aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad, out, out, &size, &executor));
        if (size > 0) return 1;
        CHECK(aclnnAdaptiveAvgPool3dBackward(nullptr, 0, executor, stream));
        std::vector<float> result(24, 0);
        CHECK(aclrtMemcpyAsync(result.data(), large_bytes, output, large_bytes, ACL_MEMCPY_DEVICE_TO_HOST, stream));
        for (float each : result) wrong += each != value / 4;
    }
    CHECK(aclDestroyTensor(grad));
    CHECK(aclDestroyTensor(out));
    CHECK(aclrtFree(input));
    CHECK(aclrtFree(output));
    CHECK(aclrtDestroyStream(stream));
    return wrong;
}
