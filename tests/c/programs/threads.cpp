// 8 threads, each with another stream and another problem. In each of 200 rounds a thread makes a bad call,
// whose message must name this thread's argument, and computes a gradient, which must be exact.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"

static std::atomic<int> wrong{0};

#define NEED(condition)                                             \
    do {                                                            \
        if (!(condition)) {                                         \
            std::printf("thread %d: %s\n", number, #condition);     \
            wrong++;                                                \
            return;                                                 \
        }                                                           \
    } while (0)

static aclTensor *planes(int64_t c, int64_t h, int64_t w, void *data) {
    const int64_t dims[] = {c, h, w};
    return aclCreateTensor(dims, 3, ACL_FLOAT, nullptr, 0, ACL_FORMAT_NCL, dims, 3, data);
}

static void work(int number) {
    const int64_t c = 2, h = 7 + number, w = 11, k = 3, ho = h / k, wo = w / k;
    std::vector<float> grad(c * ho * wo), want(c * h * w, 0.0f), got(want.size());
    aclrtStream stream;
    void *grad_block = nullptr, *out_block = nullptr;
    NEED(aclrtSetDevice(0) == ACL_SUCCESS);
    NEED(aclrtCreateStream(&stream) == ACL_SUCCESS);
    NEED(aclrtMalloc(&grad_block, grad.size() * 4, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
    NEED(aclrtMalloc(&out_block, got.size() * 4, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_SUCCESS);
    aclTensor *grad_tensor = planes(c, ho, wo, grad_block), *out_tensor = planes(c, h, w, out_block);
    const int64_t kernel_size[] = {k}, no_padding[] = {0}, too_much[] = {number + 2};
    aclIntArray *kernel = aclCreateIntArray(kernel_size, 1), *padding = aclCreateIntArray(no_padding, 1);
    aclIntArray *bad = aclCreateIntArray(too_much, 1);
    NEED(grad_tensor && out_tensor && kernel && padding && bad);
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < grad.size(); i++) grad[i] = 9.0f * static_cast<float>((i * 31 + round * 17 + number) % 101);
        for (int64_t p = 0; p < c; p++)
            for (int64_t y = 0; y < ho * k; y++)
                for (int64_t x = 0; x < wo * k; x++)
                    want[(p * h + y) * w + x] = grad[(p * ho + y / k) * wo + x / k] / 9.0f;
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        NEED(aclnnAvgPool2dBackwardGetWorkspaceSize(grad_tensor, out_tensor, kernel, nullptr, bad, false, true,
                                                    0, 0, out_tensor, &size, &executor) == 161002);
        const std::string mine = "padding is " + std::to_string(number + 2) + " on axis H";
        const char *message = aclGetRecentErrMsg();
        NEED(message != nullptr && std::strstr(message, mine.c_str()) != nullptr);
        NEED(aclGetRecentErrMsg() == nullptr);
        NEED(aclrtMemcpy(grad_block, grad.size() * 4, grad.data(), grad.size() * 4, ACL_MEMCPY_HOST_TO_DEVICE) == 0);
        NEED(aclnnAvgPool2dBackwardGetWorkspaceSize(grad_tensor, out_tensor, kernel, nullptr, padding, false,
                                                    true, 0, 0, out_tensor, &size, &executor) == 0);
        void *workspace = nullptr;
        if (size > 0) NEED(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
        NEED(aclnnAvgPool2dBackward(workspace, size, executor, stream) == 0);
        NEED(aclrtSynchronizeStream(stream) == ACL_SUCCESS);
        NEED(aclrtMemcpy(got.data(), got.size() * 4, out_block, got.size() * 4, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
        NEED(got == want);
        if (workspace) NEED(aclrtFree(workspace) == 0);
    }
    aclDestroyTensor(grad_tensor);
    aclDestroyTensor(out_tensor);
    for (aclIntArray *array : {kernel, padding, bad}) aclDestroyIntArray(array);
    NEED(aclrtFree(grad_block) == 0 && aclrtFree(out_block) == 0 && aclrtDestroyStream(stream) == 0);
}

int main() {
    if (aclInit(nullptr) != ACL_SUCCESS || aclrtSetDevice(0) != ACL_SUCCESS) return 2;
    std::vector<std::thread> threads;
    for (int number = 0; number < 8; number++) threads.emplace_back(work, number);
    for (auto &thread : threads) thread.join();
    int end = aclFinalize();
    std::printf("8 threads, 200 rounds, %d wrong\n", wrong.load());
    return wrong != 0 || end != 0;
}
