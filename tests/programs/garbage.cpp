// Random calls from several threads: garbage CALLS SEED THREADS.
//
// The calls reach every function. Their arguments are live, destroyed and invented handles of all
// threads, device addresses inside and outside of blocks, and odd sizes. With several threads the calls
// include aclFinalize and aclInit at any time.
// No call may crash or hang, no byte around the host's arrays may change, and a correct call at the end
// must still give the right gradient. A hang ends the program by SIGALRM.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
#include "aclnnop/aclnn_adaptive_max_pool2d_backward.h"
#include "aclnnop/aclnn_adaptive_max_pool3d_backward.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"

static const size_t REMEMBERED = 24;   // words of each kind
static const unsigned CALL_LIMIT = 120;  // seconds without a finished call that count as a hang
enum Kind { MEMORY, TENSOR, ARRAY, EXECUTOR, STREAM, KINDS };
static std::mutex seen_lock;
static std::vector<void *> seen[KINDS];
static std::atomic<long> tried{0}, bytes_outside{0};
static thread_local std::mt19937_64 random_words;

static int64_t below(int64_t n) { return static_cast<int64_t>(random_words() % static_cast<uint64_t>(n)); }

// Values between two canaries; the destructor counts the bytes of the canaries that changed.
template <typename T, size_t COUNT> class Fenced {
    static const size_t FENCE = 64;
    unsigned char low_[FENCE];
    T values_[COUNT];
    unsigned char high_[FENCE];

  public:
    Fenced() {
        std::memset(static_cast<void *>(low_), 0xA5, FENCE);
        std::memset(static_cast<void *>(values_), 0, sizeof values_);
        std::memset(static_cast<void *>(high_), 0xA5, FENCE);
    }
    ~Fenced() {
        for (size_t i = 0; i < FENCE; i++) bytes_outside += (low_[i] != 0xA5) + (high_[i] != 0xA5);
    }
    T *values() { return values_; }
    T &operator[](size_t i) { return values_[i]; }
};

/* Mostly a word of this kind, live or destroyed; sometimes of another kind, null or invented. */
static void *any(Kind kind) {
    if (below(12) == 0) kind = static_cast<Kind>(below(KINDS));
    if (below(40) == 0) return reinterpret_cast<void *>(random_words() >> below(64));
    std::lock_guard<std::mutex> hold(seen_lock);
    if (seen[kind].empty() || below(40) == 0) return nullptr;
    const uintptr_t word = reinterpret_cast<uintptr_t>(seen[kind][static_cast<size_t>(below(static_cast<int64_t>(seen[kind].size())))]);
    return reinterpret_cast<void *>(word + static_cast<uintptr_t>(below(40) == 0 ? below(64) : 0));
}
static void *memory() { return any(MEMORY); }
static aclTensor *tensor() { return static_cast<aclTensor *>(any(TENSOR)); }
static aclIntArray *array() { return static_cast<aclIntArray *>(any(ARRAY)); }
static aclOpExecutor *executor() { return static_cast<aclOpExecutor *>(any(EXECUTOR)); }
static void *stream() { return any(STREAM); }

static void keep(Kind kind, int status, void *word) {
    if (status != 0 || word == nullptr) return;
    std::lock_guard<std::mutex> hold(seen_lock);
    if (seen[kind].size() < REMEMBERED) seen[kind].push_back(word);
    else seen[kind][static_cast<size_t>(below(REMEMBERED))] = word;
}

static int64_t number() {
    static const int64_t odd[] = {0, 1, 2, 3, 5, -1, 27, 161002, INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 40};
    return odd[below(sizeof odd / sizeof *odd)];
}

static aclTensor *create() {
    static const int64_t shapes[2][6] = {{1, 2, 2, 3, 1, 1}, {1, 2, 4, 6, 1, 1}};
    const int64_t *shape = shapes[below(2)];
    Fenced<int64_t, 6> dims, strides;
    for (size_t i = 0; i < 6; i++) {
        dims[i] = below(40) ? shape[i] : number();
        strides[i] = below(10) ? 1 + below(7) : number();
    }
    const uint64_t rank = static_cast<uint64_t>(below(10) ? 4 : below(6));
    const int type = below(4) ? ACL_FLOAT : below(6) ? ACL_INT32 : static_cast<int>(below(30));
    return aclCreateTensor(below(50) ? dims.values() : nullptr, rank, static_cast<aclDataType>(type),
                           below(6) ? nullptr : strides.values(), below(10) ? 0 : number(),
                           static_cast<aclFormat>(below(20) ? 2 * (below(4) != 0) : below(50)), dims.values(), rank, memory());
}

static aclIntArray *create_array() {
    Fenced<int64_t, 2> values;
    for (size_t i = 0; i < 2; i++) values[i] = below(8) ? 2 * below(2) : number();
    return aclCreateIntArray(values.values(), static_cast<uint64_t>(below(3)));
}

static void plan() {
    Fenced<uint64_t, 1> size;
    Fenced<aclOpExecutor *, 1> made;
    uint64_t *const to = below(100) ? size.values() : nullptr;
    int status = 0;
    switch (below(4)) {
        case 0:
            status = aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(tensor(), tensor(), tensor(), to, made.values());
            break;
        case 1:
            status = aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(tensor(), tensor(), tensor(), tensor(), to, made.values());
            break;
        case 2:
            status = aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize(tensor(), tensor(), tensor(), tensor(), to, made.values());
            break;
        default:
            status = aclnnAvgPool2dBackwardGetWorkspaceSize(tensor(), tensor(), array(), array(), array(), below(2) != 0,
                                                            below(2) != 0, below(2) * number(), static_cast<int8_t>(below(4)),
                                                            tensor(), to, made.values());
    }
    keep(EXECUTOR, status, made[0]);
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

#include "operators.h"  // any_operator(); tests/hostile/c_calls.py prints it from the pages

static void copy() {
    Fenced<char, 256> host;
    const size_t count = static_cast<size_t>(below(256)), most = static_cast<size_t>(below(8) ? 4096 : number());
    switch (below(4)) {
        case 0: aclrtMemcpy(host.values(), 256, memory(), count, ACL_MEMCPY_DEVICE_TO_HOST); break;
        case 1: aclrtMemcpy(memory(), most, memory(), count, ACL_MEMCPY_DEVICE_TO_DEVICE); break;
        default: aclrtMemcpy(memory(), most, host.values(), count, ACL_MEMCPY_HOST_TO_DEVICE);
    }
}

static void allocate() {
    Fenced<void *, 1> made;
    const int status = aclrtMalloc(below(100) ? made.values() : nullptr,
                                   static_cast<size_t>(below(8) ? below(1024) : number()),
                                   static_cast<aclrtMemMallocPolicy>(below(10) ? 0 : below(4)));
    keep(MEMORY, status, made[0]);
}

static void runtime_options() {
    Fenced<int64_t, 1> value;
    switch (below(4)) {
        case 0: aclrtSetDevice(static_cast<int32_t>(number())); break;
        case 1: aclrtResetDevice(0); break;
        case 2: aclrtCtxSetSysParamOpt(static_cast<aclSysParamOpt>(below(3)), number()); break;
        default: aclrtCtxGetSysParamOpt(static_cast<aclSysParamOpt>(below(3)), value.values());
    }
}

/* One random call. `others` is true when other threads make calls too. */
static void call(bool others) {
    Fenced<aclrtStream, 1> made;
    switch (below(25)) {
        case 0:
        case 1: allocate(); break;
        case 2: if (below(4) == 0) aclrtFree(memory()); break;
        case 3: if (below(4) == 0) aclDestroyTensor(tensor()); break;
        case 4: if (below(4) == 0) aclDestroyIntArray(array()); break;
        case 5: if (below(4) == 0) aclDestroyAclOpExecutor(executor()); break;
        case 6: if (below(4) == 0) aclSetAclOpExecutorRepeatable(executor()); break;
        case 7: aclrtSynchronizeStream(stream()); break;
        case 8: if (below(40) == 0) aclrtDestroyStream(stream()); break;
        case 9: if (below(20) == 0) keep(STREAM, aclrtCreateStream(made.values()), made[0]); break;
        case 10: keep(ARRAY, 0, create_array()); break;
        case 11:
        case 12:
        case 13: keep(TENSOR, 0, create()); break;
        case 14:
        case 15: copy(); break;
        case 16:
        case 17: run(); break;
        case 18: runtime_options(); break;
        default: plan();
    }
    if (others && below(2000) == 0) aclFinalize();
    if (others && below(100) == 0) aclInit(below(10) ? nullptr : "/nowhere/acl.json");
    const char *message = below(5) == 0 ? aclGetRecentErrMsg() : nullptr;
    if (message != nullptr && std::strlen(message) >= 4096) bytes_outside++;
    if (below(4) == 0) any_operator();
    tried++;
    alarm(CALL_LIMIT);
}

/* Whether the gradient of (3, 5) with respect to four cells is (1.5, 1.5, 2.5, 2.5). */
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

int main(int count, char **arguments) {
    const long calls = count > 1 ? std::atol(arguments[1]) : 20000;
    const unsigned long seed = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 20230707;
    const int threads = count > 3 ? std::atoi(arguments[3]) : 1;
    alarm(CALL_LIMIT);
    if (aclInit(nullptr) || aclrtSetDevice(0)) return 2;
    std::vector<std::thread> working;
    for (int thread = 0; thread < threads; thread++)
        working.emplace_back([=] {
            random_words.seed(seed * 1000 + static_cast<unsigned long>(thread));
            for (long i = thread; i < calls; i += threads) call(threads > 1);
        });
    for (auto &thread : working) thread.join();
    if (threads > 1) aclInit(nullptr);  // a thread may have called aclFinalize
    const bool right = still_right();
    const int end = aclFinalize();
    std::printf("%ld calls tried, %ld bytes outside, %s\n", tried.load(), bytes_outside.load(), right ? "right" : "wrong");
    return !right || bytes_outside != 0 ? 3 : end != 0;
}
