// Measures the time of phase one, phase two and a synchronization together, after warm-up; then the same
// without phase one, with a repeatable executor.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"

int main() {
    const int64_t small[] = {1, 16, 1, 1}, large[] = {1, 16, 4, 4}, kernel[] = {4, 4}, zero[] = {0, 0};
    const std::vector<float> host(16, 3.0f);
    aclrtStream stream;
    void *grad_block = nullptr, *out_block = nullptr;
    if (aclInit(nullptr) || aclrtSetDevice(0) || aclrtCreateStream(&stream)) return 2;
    if (aclrtMalloc(&grad_block, 64, ACL_MEM_MALLOC_HUGE_FIRST)) return 2;
    if (aclrtMalloc(&out_block, 1024, ACL_MEM_MALLOC_HUGE_FIRST)) return 2;
    if (aclrtMemcpy(grad_block, 64, host.data(), 64, ACL_MEMCPY_HOST_TO_DEVICE)) return 2;
    aclTensor *grad = aclCreateTensor(small, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_NCHW, small, 4, grad_block);
    aclTensor *out = aclCreateTensor(large, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_NCHW, large, 4, out_block);
    aclIntArray *k = aclCreateIntArray(kernel, 2), *p = aclCreateIntArray(zero, 2);
    const int warm_up = 200, rounds = 2000;
    aclOpExecutor *repeatable = nullptr;
    for (bool again : {false, true}) {
        std::vector<double> times;
        for (int round = 0; round < warm_up + rounds; round++) {
            uint64_t size = 0;
            aclOpExecutor *executor = repeatable;
            const auto begin = std::chrono::steady_clock::now();
            if (executor == nullptr &&
                aclnnAvgPool2dBackwardGetWorkspaceSize(grad, out, k, k, p, false, true, 0, 0, out, &size, &executor))
                return 1;
            if (again && repeatable == nullptr && aclSetAclOpExecutorRepeatable(repeatable = executor)) return 1;
            if (size != 0 || aclnnAvgPool2dBackward(nullptr, 0, executor, stream)) return 1;
            if (aclrtSynchronizeStream(stream)) return 1;
            const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
            if (round >= warm_up) times.push_back(took.count());
        }
        std::sort(times.begin(), times.end());
        std::printf("%s: a tenth below %.1f us, half below %.1f us\n", again ? "repeatable" : "both phases",
                    times[rounds / 10], times[rounds / 2]);
    }
    return 0;
}
