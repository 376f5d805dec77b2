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
#include <pthread.h>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"

static const size_t REMEMBERED = 24;   // words of each kind
static const unsigned CALL_LIMIT = 120;  // seconds without a finished call that count as a hang
enum Kind { MEMORY, HOST, TENSOR, ARRAY, EXECUTOR, STREAM, CONTEXT, EVENT, BOOLS, FLOATS, SCALAR, TENSORS, SCALARS, KINDS };
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
static void *event() { return any(EVENT); }
template <typename T> static T *handle(Kind kind) { return static_cast<T *>(any(kind)); }

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

/* A tensor of the right shape, in memory that may be too small or freed. */
static aclTensor *fitting(bool large) {
    const int64_t shape[] = {1, 2, large ? 4 : 2, large ? 6 : 3};
    aclTensor *const made = aclCreateTensor(shape, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 4, memory());
    keep(TENSOR, 0, made);
    return made;
}

#include "operators.h"  // any_operator(); tests/hostile/c_calls.py prints it from the pages

static void plan() {
    if (below(5)) return any_operator();
    Fenced<uint64_t, 1> size;
    Fenced<aclOpExecutor *, 1> made;
    uint64_t *const to = below(100) ? size.values() : nullptr;
    aclTensor *const out = fitting(true);
    const int status = aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(fitting(false), out, out, to, made.values());
    keep(EXECUTOR, status, made[0]);
}

static void run() {
    aclnnAdaptiveAvgPool3dBackward(memory(), static_cast<uint64_t>(below(2) ? 4096 : number()), executor(), stream());
}

static void copy() {
    Fenced<char, 256> host;
    const size_t count = static_cast<size_t>(below(256)), most = static_cast<size_t>(below(8) ? 4096 : number());
    switch (below(4)) {
        case 0: aclrtMemcpy(host.values(), 256, memory(), count, ACL_MEMCPY_DEVICE_TO_HOST); break;
        case 1: aclrtMemcpy(memory(), most, memory(), count, ACL_MEMCPY_DEVICE_TO_DEVICE); break;
        default: aclrtMemcpy(memory(), most, host.values(), count, ACL_MEMCPY_HOST_TO_DEVICE);
    }
}

/* A word that aclrtMalloc gave out, or null: an invented address could be host memory, which a fill would write. */
static void *known() {
    std::lock_guard<std::mutex> hold(seen_lock);
    return seen[MEMORY].empty() ? nullptr : seen[MEMORY][static_cast<size_t>(below(static_cast<int64_t>(seen[MEMORY].size())))];
}

/* Copies and fills on a stream. Their host side lives to the end, as the stream may reach it late. */
static void copy_later() {
    static char host[256];
    const size_t count = static_cast<size_t>(below(256)), most = static_cast<size_t>(below(8) ? 4096 : number());
    switch (below(5)) {
        case 0: aclrtMemcpyAsync(host, 256, memory(), count, ACL_MEMCPY_DEVICE_TO_HOST, stream()); break;
        case 1: aclrtMemcpyAsync(memory(), most, memory(), count, ACL_MEMCPY_DEVICE_TO_DEVICE, stream()); break;
        case 2: aclrtMemcpyAsync(memory(), most, host, count, ACL_MEMCPY_HOST_TO_DEVICE, stream()); break;
        case 3: aclrtMemsetAsync(known(), most, static_cast<int32_t>(below(300)), count, stream()); break;
        default: aclrtMemset(known(), most, static_cast<int32_t>(below(300)), count);
    }
}

static void host_memory() {
    Fenced<void *, 1> made;
    if (below(8) == 0) keep(HOST, aclrtMallocHostWithCfg(made.values(), static_cast<uint64_t>(below(1024)), nullptr), made[0]);
    else if (below(2)) keep(HOST, aclrtMallocHost(made.values(), static_cast<size_t>(below(8) ? below(1024) : number())), made[0]);
    else aclrtFreeHost(any(HOST));
}

static void on_callback(void *given) {
    if (given == nullptr) bytes_outside++;
}

static void on_failure(aclrtExceptionInfo *info) {
    if (aclrtGetErrorCodeFromExceptionInfo(info) == 0xFFFFFFFF) bytes_outside++;
}

/* Callbacks, and the facts of an exception that is none. */
static void callbacks() {
    const auto *const info = static_cast<const aclrtExceptionInfo *>(any(TENSOR));
    const uint64_t thread = below(4) ? static_cast<uint64_t>(pthread_self()) : random_words();
    switch (below(12)) {
        case 0: aclrtSubscribeReport(thread, stream()); break;
        case 1: aclrtUnSubscribeReport(thread, stream()); break;
        case 2:
        case 3: aclrtLaunchCallback(below(10) ? on_callback : nullptr, &tried, ACL_CALLBACK_NO_BLOCK, stream()); break;
        case 4: aclrtProcessReport(static_cast<int32_t>(below(10) ? 1 : below(2) ? 0 : -2)); break;  // -1 may wait for ever
        case 5: aclrtSetExceptionInfoCallback(below(2) ? on_failure : nullptr); break;
        case 6: aclrtGetTaskIdFromExceptionInfo(info); break;
        case 7: aclrtGetStreamIdFromExceptionInfo(info); break;
        case 8: aclrtGetThreadIdFromExceptionInfo(info); break;
        case 9: aclrtGetDeviceIdFromExceptionInfo(info); break;
        case 10: aclrtGetErrorCodeFromExceptionInfo(info); break;
        default: aclrtGetLastError(ACL_RT_THREAD_LEVEL); aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL);
    }
}

/* A word that aclrtMallocHost gave out, or null. */
static void *known_host() {
    std::lock_guard<std::mutex> hold(seen_lock);
    return seen[HOST].empty() ? nullptr : seen[HOST][static_cast<size_t>(below(static_cast<int64_t>(seen[HOST].size())))];
}

static void rows_and_registers() {
    Fenced<char, 256> host;
    static char lasting[256];
    Fenced<void *, 1> made;
    Fenced<int32_t, 1> id;
    const size_t width = static_cast<size_t>(below(16)), pitch = static_cast<size_t>(below(8) ? 16 : number());
    const size_t height = static_cast<size_t>(below(8) ? below(16) : number()), rows = height < 16 ? height : 16;
    switch (below(8)) {
        case 0: aclrtMemcpy2d(memory(), pitch, host.values(), 16, width, rows, ACL_MEMCPY_HOST_TO_DEVICE); break;
        case 1: aclrtMemcpy2d(host.values(), 16, memory(), pitch, width, rows, ACL_MEMCPY_DEVICE_TO_HOST); break;
        case 2: aclrtMemcpy2dAsync(lasting, 16, memory(), pitch, width, rows, ACL_MEMCPY_DEVICE_TO_HOST, stream()); break;
        case 3: aclrtMemcpy2d(memory(), pitch, memory(), pitch, width, height, ACL_MEMCPY_DEVICE_TO_DEVICE); break;
        case 4: keep(MEMORY, aclrtHostRegister(known_host(), static_cast<uint64_t>(below(64)), ACL_HOST_REGISTER_MAPPED, made.values()), made[0]); break;
        case 5: aclrtHostUnregister(known_host()); break;
        case 6: aclrtStreamGetId(stream(), id.values()); break;
        default: aclrtSetOpExecuteTimeOut(static_cast<uint32_t>(below(3)));
    }
}

static void contexts() {
    Fenced<aclrtContext, 1> made;
    Fenced<int32_t, 1> device;
    Fenced<uint32_t, 1> count;
    Fenced<aclrtRunMode, 1> mode;
    Fenced<aclrtDeviceStatus, 1> state;
    switch (below(16)) {
        case 10: aclrtQueryDeviceStatus(static_cast<int32_t>(below(3)), state.values()); break;
        case 11: aclrtGetDeviceCapability(0, static_cast<aclrtDevFeatureType>(below(3)), device.values()); break;
        case 12: aclrtDeviceDisablePeerAccess(static_cast<int32_t>(below(3))); break;
        case 0: if (below(10) == 0) keep(CONTEXT, aclrtCreateContext(made.values(), static_cast<int32_t>(below(8) ? 0 : number())), made[0]); break;
        case 1: if (below(10) == 0) aclrtDestroyContext(any(CONTEXT)); break;
        case 2: if (below(10) == 0) aclrtSetCurrentContext(any(CONTEXT)); break;
        case 3: keep(CONTEXT, aclrtGetCurrentContext(made.values()), made[0]); break;
        case 4: aclrtGetDevice(device.values()); break;
        case 5: aclrtGetDeviceCount(count.values()); break;
        case 6: aclrtGetRunMode(below(10) ? mode.values() : nullptr); break;
        case 7: aclrtSynchronizeDevice(); break;
        case 8: aclrtDeviceCanAccessPeer(device.values(), 0, static_cast<int32_t>(below(3))); break;
        case 9: aclrtDeviceEnablePeerAccess(1, 0); break;
        default: aclrtSetDevice(0);
    }
}

static void events() {
    Fenced<aclrtEvent, 1> made;
    Fenced<float, 1> ms;
    Fenced<aclrtEventStatus, 1> old_status;
    Fenced<aclrtEventRecordedStatus, 1> recorded;
    Fenced<aclrtEventWaitStatus, 1> waited;
    const uint32_t flag = static_cast<uint32_t>(below(20));
    switch (below(14)) {
        case 0: keep(EVENT, aclrtCreateEvent(made.values()), made[0]); break;
        case 1: keep(EVENT, aclrtCreateEventWithFlag(made.values(), flag), made[0]); break;
        case 2: keep(EVENT, aclrtCreateEventExWithFlag(made.values(), flag), made[0]); break;
        case 3: if (below(4) == 0) aclrtDestroyEvent(event()); break;
        case 4:
        case 5: aclrtRecordEvent(event(), stream()); break;
        case 6: aclrtResetEvent(event(), stream()); break;
        case 7: aclrtStreamWaitEvent(stream(), event()); break;
        case 8: aclrtSynchronizeEvent(event()); break;
        case 9: aclrtQueryEvent(event(), old_status.values()); break;
        case 10: aclrtQueryEventStatus(event(), recorded.values()); break;
        case 11: aclrtQueryEventWaitStatus(event(), waited.values()); break;
        default: aclrtEventElapsedTime(below(20) ? ms.values() : nullptr, event(), event());
    }
}

static void streams() {
    Fenced<aclrtStream, 1> made;
    Fenced<aclrtStreamStatus, 1> status;
    switch (below(6)) {
        case 0: if (below(20) == 0) keep(STREAM, aclrtCreateStreamWithConfig(made.values(), 0, static_cast<uint32_t>(below(64))), made[0]); break;
        case 1: if (below(40) == 0) aclrtDestroyStreamForce(stream()); break;
        case 2: aclrtSynchronizeStreamWithTimeout(stream(), static_cast<int32_t>(below(3) ? below(5) : number())); break;
        case 3: aclrtStreamQuery(stream(), status.values()); break;
        case 4: aclrtSetStreamFailureMode(stream(), static_cast<uint64_t>(below(3))); break;
        default: aclrtSetOpWaitTimeout(static_cast<uint32_t>(below(3)));
    }
}

/* The parts of a tensor; the arrays come from new[]. */
static void getters() {
    Fenced<int64_t *, 1> dims;
    Fenced<uint64_t, 1> count;
    Fenced<int64_t, 1> offset;
    Fenced<aclFormat, 1> format;
    Fenced<aclDataType, 1> type;
    Fenced<void *, 1> address;
    const int64_t shape[] = {1, 2, 4, below(20) ? 6 : number()};
    switch (below(9)) {
        case 0: aclGetViewShape(tensor(), dims.values(), count.values()); break;
        case 1: aclGetViewStrides(tensor(), dims.values(), below(20) ? count.values() : nullptr); break;
        case 2: aclGetStorageShape(tensor(), dims.values(), count.values()); break;
        case 3: aclGetViewOffset(tensor(), offset.values()); break;
        case 4: aclGetFormat(tensor(), format.values()); break;
        case 5: aclGetDataType(tensor(), type.values()); break;
        case 6: aclGetRawTensorAddr(tensor(), address.values()); break;
        case 7: aclSetRawTensorAddr(tensor(), memory()); break;
        default: aclInitTensor(tensor(), shape, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 4, memory());
    }
    delete[] dims[0];
}

static void addresses() {
    const size_t index = static_cast<size_t>(below(10) ? below(4) : number());
    aclTensorList *const list = handle<aclTensorList>(TENSORS);
    switch (below(9)) {
        case 0: aclSetTensorAddr(executor(), index, tensor(), memory()); break;
        case 1: aclSetInputTensorAddr(executor(), index, tensor(), memory()); break;
        case 2: aclSetOutputTensorAddr(executor(), index, tensor(), memory()); break;
        case 3: AclSetTensorAddr(executor(), index, tensor(), memory()); break;
        case 4: AclSetInputTensorAddr(executor(), index, tensor(), memory()); break;
        case 5: AclSetOutputTensorAddr(executor(), index, tensor(), memory()); break;
        case 6: aclSetDynamicTensorAddr(executor(), index, index, list, memory()); break;
        case 7: aclSetDynamicInputTensorAddr(executor(), index, index, list, memory()); break;
        default: aclSetDynamicOutputTensorAddr(executor(), index, index, list, memory());
    }
}

static void values() {
    Fenced<bool, 3> bools;
    Fenced<float, 3> floats;
    double scalar = 2.5;
    const aclTensor *const tensors[] = {tensor(), tensor()};
    const aclScalar *const scalars[] = {handle<aclScalar>(SCALAR), handle<aclScalar>(SCALAR)};
    const uint64_t size = static_cast<uint64_t>(below(3));
    Fenced<uint64_t, 1> count;
    switch (below(16)) {
        case 0: keep(BOOLS, 0, aclCreateBoolArray(bools.values(), size)); break;
        case 1: keep(FLOATS, 0, aclCreateFloatArray(below(10) ? floats.values() : nullptr, size)); break;
        case 2:
        case 3: keep(SCALAR, 0, aclCreateScalar(below(10) ? &scalar : nullptr, static_cast<aclDataType>(below(30)))); break;
        case 4: keep(TENSORS, 0, aclCreateTensorList(tensors, size)); break;
        case 5: keep(SCALARS, 0, aclCreateScalarList(scalars, size)); break;
        case 6: aclDestroyBoolArray(handle<aclBoolArray>(BOOLS)); break;
        case 7: aclDestroyFloatArray(handle<aclFloatArray>(FLOATS)); break;
        case 8: aclDestroyScalar(handle<aclScalar>(SCALAR)); break;
        case 9: aclDestroyTensorList(handle<aclTensorList>(TENSORS)); break;
        case 10: aclDestroyScalarList(handle<aclScalarList>(SCALARS)); break;
        case 11: aclGetIntArraySize(array(), count.values()); break;
        case 12: aclGetBoolArraySize(handle<aclBoolArray>(BOOLS), count.values()); break;
        case 13: aclGetFloatArraySize(handle<aclFloatArray>(FLOATS), count.values()); break;
        case 14: aclGetTensorListSize(handle<aclTensorList>(TENSORS), count.values()); break;
        default: aclGetScalarListSize(handle<aclScalarList>(SCALARS), count.values());
    }
}

static void queries() {
    Fenced<size_t, 2> bytes;
    Fenced<int32_t, 3> version;
    Fenced<uint32_t, 1> model;
    switch (below(12)) {
        case 0: aclrtGetMemInfo(static_cast<aclrtMemAttr>(below(20)), bytes.values(), bytes.values() + 1); break;
        case 1: aclrtGetVersion(version.values(), version.values() + 1, version.values() + 2); break;
        case 2: if (std::strncmp(aclrtGetSocName(), "Ascend", 6) != 0) bytes_outside++; break;
        case 3: aclDataTypeSize(static_cast<aclDataType>(number())); break;
        case 4: aclFloat16ToFloat(aclFloatToFloat16(static_cast<float>(number()))); break;
        case 5: aclnnInit(nullptr); break;
        case 6: aclnnFinalize(); break;
        case 7: aclrtSetExceptionInfoCallback(nullptr); break;
        case 8: if (below(100) == 0) aclAppLog(ACL_INFO, "queries", "garbage.cpp", 1, "%d of %s", 3, "it"); break;
        case 9: aclmdlLoadFromFile("model.om", model.values()); break;
        case 10: aclCreateDataBuffer(nullptr, 3); break;
        default: aclopDestroyAttr(nullptr);
    }
}

static void allocate() {
    Fenced<void *, 1> made;
    const size_t size = static_cast<size_t>(below(8) ? below(1024) : number());
    const aclrtMemMallocPolicy policy = static_cast<aclrtMemMallocPolicy>(below(10) ? 0 : below(10));
    const int which = static_cast<int>(below(10));
    const int status = which == 0   ? aclrtMallocAlign32(made.values(), size, policy)
                       : which == 1 ? aclrtMallocCached(made.values(), size, policy)
                       : which == 2 ? aclrtMallocWithCfg(made.values(), size, policy, nullptr)
                                    : aclrtMalloc(below(100) ? made.values() : nullptr, size, policy);
    keep(MEMORY, status, made[0]);
}

static void runtime_options() {
    Fenced<int64_t, 1> value;
    switch (below(6)) {
        case 0: aclrtSetDevice(static_cast<int32_t>(number())); break;
        case 1:
            if (below(4) == 0) aclrtResetDevice(0);
            if (below(40) == 0) aclrtResetDeviceForce(0);
            aclrtSetDevice(0);
            break;
        case 2: aclrtCtxSetSysParamOpt(static_cast<aclSysParamOpt>(below(3)), number()); break;
        case 3: aclrtSetSysParamOpt(static_cast<aclSysParamOpt>(below(3)), number()); break;
        case 4: aclrtGetSysParamOpt(static_cast<aclSysParamOpt>(below(3)), value.values()); break;
        default: aclrtCtxGetSysParamOpt(static_cast<aclSysParamOpt>(below(3)), value.values());
    }
}

/* One random call. `others` is true when other threads make calls too. */
static void call(bool others) {
    Fenced<aclrtStream, 1> made;
    switch (below(38)) {
        case 36: callbacks(); break;
        case 37: rows_and_registers(); break;
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
        case 19: copy_later(); break;
        case 20: host_memory(); break;
        case 21: contexts(); break;
        case 22:
        case 23: events(); break;
        case 24: streams(); break;
        case 25: getters(); break;
        case 26: addresses(); break;
        case 27: values(); break;
        case 28: queries(); break;
        default: plan();
    }
    if (others && below(2000) == 0) aclFinalize();
    if (others && below(100) == 0) aclInit(below(10) ? nullptr : "/nowhere/acl.json");
    if (others && below(100) == 0) aclrtSetDevice(0);
    const char *message = below(5) == 0 ? aclGetRecentErrMsg() : nullptr;
    if (message != nullptr && std::strlen(message) >= 4096) bytes_outside++;
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
    aclrtSetDevice(0);                  // or aclrtResetDevice
    const bool right = still_right();
    const int end = aclFinalize();
    std::printf("%ld calls tried, %ld bytes outside, %s\n", tried.load(), bytes_outside.load(), right ? "right" : "wrong");
    return !right || bytes_outside != 0 ? 3 : end != 0;
}
