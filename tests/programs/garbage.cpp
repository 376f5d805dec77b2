// Every function with every word it may get: live, dead and made-up handles, device addresses whole
// and beyond, odd sizes. Nothing may crash, and a good gradient must still come out at the end.
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
#include "aclnnop/aclnn_adaptive_max_pool2d_backward.h"
#include "aclnnop/aclnn_adaptive_max_pool3d_backward.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"

static std::mt19937_64 random_words(20230707);
enum Kind { MEMORY, TENSOR, ARRAY, EXECUTOR, STREAM, KINDS };
static std::vector<void *> seen[KINDS];

static int64_t below(int64_t n) { return static_cast<int64_t>(random_words() % static_cast<uint64_t>(n)); }

/* Mostly a word of this kind, dead or alive; at times of another, or made up. */
static void *any(Kind kind) {
    if (below(12) == 0) kind = static_cast<Kind>(below(KINDS));
    if (below(40) == 0) return reinterpret_cast<void *>(random_words() >> below(64));
    if (seen[kind].empty() || below(40) == 0) return nullptr;
    char *word = static_cast<char *>(seen[kind][static_cast<size_t>(below(static_cast<int64_t>(seen[kind].size())))]);
    return word + (below(40) == 0 ? below(64) : 0);
}
static void *memory() { return any(MEMORY); }
static aclTensor *tensor() { return static_cast<aclTensor *>(any(TENSOR)); }
static aclIntArray *array() { return static_cast<aclIntArray *>(any(ARRAY)); }
static aclOpExecutor *executor() { return static_cast<aclOpExecutor *>(any(EXECUTOR)); }
static void *stream() { return any(STREAM); }

static void keep(Kind kind, int status, void *word) {
    if (status != 0 || word == nullptr) return;
    if (seen[kind].size() < 24) seen[kind].push_back(word);
    else seen[kind][static_cast<size_t>(below(24))] = word;
}

static int64_t number() {
    static const int64_t odd[] = {0, 1, 2, 3, 5, -1, 27, 161002, INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 40};
    return odd[below(sizeof odd / sizeof *odd)];
}

static aclTensor *create() {
    static const int64_t shapes[2][6] = {{1, 2, 2, 3, 1, 1}, {1, 2, 4, 6, 1, 1}};
    const int64_t *shape = shapes[below(2)];
    int64_t dims[6], strides[6];
    for (int i = 0; i < 6; i++) {
        dims[i] = below(40) ? shape[i] : number();
        strides[i] = below(10) ? 1 + below(7) : number();
    }
    const uint64_t rank = static_cast<uint64_t>(below(10) ? 4 : below(6));
    const int type = below(4) ? ACL_FLOAT : below(6) ? ACL_INT32 : static_cast<int>(below(30));
    return aclCreateTensor(below(50) ? dims : nullptr, rank, static_cast<aclDataType>(type),
                           below(6) ? nullptr : strides, below(10) ? 0 : number(),
                           static_cast<aclFormat>(below(20) ? 2 * (below(4) != 0) : below(50)), dims, rank, memory());
}

static aclIntArray *create_array() {
    const int64_t values[] = {below(8) ? 2 * below(2) : number(), below(8) ? 2 * below(2) : number()};
    return aclCreateIntArray(values, static_cast<uint64_t>(below(3)));
}

static void plan() {
    uint64_t size = 0;
    aclOpExecutor *made = nullptr;
    int status = 0;
    switch (below(4)) {
        case 0:
            status = aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(tensor(), tensor(), tensor(), &size, &made);
            break;
        case 1:
            status = aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(tensor(), tensor(), tensor(), tensor(), &size, &made);
            break;
        case 2:
            status = aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize(tensor(), tensor(), tensor(), tensor(), &size, &made);
            break;
        default:
            status = aclnnAvgPool2dBackwardGetWorkspaceSize(tensor(), tensor(), array(), array(), array(), below(2) != 0,
                                                            below(2) != 0, below(2) * number(), static_cast<int8_t>(below(4)),
                                                            tensor(), &size, &made);
    }
    keep(EXECUTOR, status, made);
}

static void run() {
    const uint64_t size = static_cast<uint64_t>(below(2) ? 4096 : number());
    switch (below(4)) {
        case 0: aclnnAdaptiveAvgPool3dBackward(memory(), size, executor(), stream()); break;
        case 1: aclnnAdaptiveMaxPool2dBackward(memory(), size, executor(), stream()); break;
        case 2: aclnnAdaptiveMaxPool3dBackward(memory(), size, executor(), stream()); break;
        default: aclnnAvgPool2dBackward(memory(), size, executor(), stream());
    }
}

static void copy() {
    static char host[4096];
    const size_t count = static_cast<size_t>(below(256)), most = static_cast<size_t>(below(8) ? 4096 : number());
    switch (below(4)) {
        case 0: aclrtMemcpy(host, sizeof host, memory(), count, ACL_MEMCPY_DEVICE_TO_HOST); break;
        case 1: aclrtMemcpy(memory(), most, memory(), count, ACL_MEMCPY_DEVICE_TO_DEVICE); break;
        default: aclrtMemcpy(memory(), most, host, count, ACL_MEMCPY_HOST_TO_DEVICE);
    }
}

static void call() {
    void *made = nullptr;
    int status = 0;
    switch (below(24)) {
        case 0:
        case 1:
            status = aclrtMalloc(&made, static_cast<size_t>(below(8) ? below(1024) : number()),
                                 static_cast<aclrtMemMallocPolicy>(below(10) ? 0 : below(4)));
            keep(MEMORY, status, made);
            break;
        case 2: if (below(4) == 0) aclrtFree(memory()); break;
        case 3: if (below(4) == 0) aclDestroyTensor(tensor()); break;
        case 4: if (below(4) == 0) aclDestroyIntArray(array()); break;
        case 5: if (below(4) == 0) aclDestroyAclOpExecutor(executor()); break;
        case 6: if (below(4) == 0) aclSetAclOpExecutorRepeatable(executor()); break;
        case 7: aclrtSynchronizeStream(stream()); break;
        case 8: if (below(40) == 0) aclrtDestroyStream(stream()); break;
        case 9:
            if (below(20) == 0) status = aclrtCreateStream(&made);
            keep(STREAM, status, made);
            break;
        case 10: keep(ARRAY, 0, create_array()); break;
        case 11:
        case 12:
        case 13: keep(TENSOR, 0, create()); break;
        case 14:
        case 15: copy(); break;
        case 16:
        case 17: run(); break;
        default: plan();
    }
    if (below(5) == 0) aclGetRecentErrMsg();
}

/* (1,1,1,2) = 3, 5 back to (1,1,1,4). */
static bool still_right() {
    const int64_t small[] = {1, 1, 1, 2}, large[] = {1, 1, 1, 4};
    const float grad[] = {3, 5}, want[] = {1.5, 1.5, 2.5, 2.5};
    float got[4] = {};
    void *grad_block = nullptr, *out_block = nullptr;
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    aclrtStream stream = nullptr;
    if (aclrtCreateStream(&stream) || aclrtMalloc(&grad_block, 8, ACL_MEM_MALLOC_HUGE_FIRST)) return false;
    if (aclrtMalloc(&out_block, 16, ACL_MEM_MALLOC_HUGE_FIRST)) return false;
    if (aclrtMemcpy(grad_block, 8, grad, 8, ACL_MEMCPY_HOST_TO_DEVICE)) return false;
    aclTensor *g = aclCreateTensor(small, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, small, 4, grad_block);
    aclTensor *x = aclCreateTensor(large, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, large, 4, out_block);
    if (aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(g, x, x, &size, &executor) || size) return false;
    if (aclnnAdaptiveAvgPool3dBackward(nullptr, 0, executor, stream) || aclrtSynchronizeStream(stream)) return false;
    if (aclrtMemcpy(got, 16, out_block, 16, ACL_MEMCPY_DEVICE_TO_HOST)) return false;
    return std::memcmp(got, want, sizeof got) == 0;
}

int main() {
    if (aclInit(nullptr) || aclrtSetDevice(0)) return 2;
    for (int i = 0; i < 20000; i++) call();
    std::printf("%s\n", still_right() ? "right" : "wrong");
    return aclFinalize() != 0;
}
