/* Functions for all programs. A faulty program returns 0 when its faulty call succeeds and 1 when that
 * call fails; 2 means that an earlier call failed. */
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"

static aclrtStream stream;

static void need(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "setup: %s failed: %s\n", what, aclGetRecentErrMsg());
        exit(2);
    }
}
#define NEED(call) need((call) == 0, #call)

static inline void begin(void) {
    NEED(aclInit(NULL));
    NEED(aclrtSetDevice(0));
    NEED(aclrtCreateStream(&stream));
}

static inline void *device(size_t size) {
    void *block = NULL;
    NEED(aclrtMalloc(&block, size, ACL_MEM_MALLOC_HUGE_FIRST));
    return block;
}

/* Device memory of `count` floats 1, 2, 3, … */
static inline void *numbers(int count) {
    float host[256];
    void *block = device((size_t)count * sizeof(float));
    for (int i = 0; i < count; i++) host[i] = (float)(i + 1);
    NEED(aclrtMemcpy(block, (size_t)count * 4, host, (size_t)count * 4, ACL_MEMCPY_HOST_TO_DEVICE));
    return block;
}

/* Host memory of `count` floats, to which a queued copy writes 1, 2, 3, … */
static inline float *numbers_later(int count) {
    void *host = NULL;
    const size_t bytes = (size_t)count * sizeof(float);
    NEED(aclrtMallocHost(&host, bytes));
    NEED(aclrtMemcpyAsync(host, bytes, numbers(count), bytes, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    return (float *)host;
}

/* Begins with two devices, and returns `numbers` of device 0; this thread then uses device 1. */
static inline void *numbers_of_another_device(int count) {
    setenv("POOLTIDE_DEVICES", "2", 1);
    begin();
    void *block = numbers(count);
    NEED(aclrtSetDevice(1));
    return block;
}

static inline aclTensor *volume(int64_t c, int64_t d, int64_t h, int64_t w, void *data) {
    const int64_t dims[] = {c, d, h, w};
    aclTensor *made = aclCreateTensor(dims, 4, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, dims, 4, data);
    need(made != NULL, "aclCreateTensor");
    return made;
}

static inline aclOpExecutor *plan(const aclTensor *grad, const aclTensor *self, aclTensor *out) {
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    NEED(aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad, self, out, &size, &executor));
    return executor;
}

/* Compute an average gradient of (2,1,1,3) to (2,1,5,7) from this gradOutput memory; whether that fails. */
static inline int gradient(void *memory) {
    void *block = device(70 * sizeof(float));
    aclTensor *grad = volume(2, 1, 1, 3, memory), *out = volume(2, 1, 5, 7, block);
    NEED(aclnnAdaptiveAvgPool3dBackward(NULL, 0, plan(grad, out, out), stream));
    int status = aclrtSynchronizeStream(stream);
    aclDestroyTensor(grad);
    aclDestroyTensor(out);
    NEED(aclrtFree(block));
    return status != 0;
}

/* Plan an average gradient with cubeMathType 3; the size of its workspace goes to `size`. */
static inline aclOpExecutor *plan_with_workspace(uint64_t *size) {
    const int64_t small[] = {2, 1, 1}, large[] = {2, 3, 5}, kernel[] = {3, 5}, none[] = {0};
    aclOpExecutor *executor = NULL;
    aclTensor *grad = aclCreateTensor(small, 3, ACL_FLOAT, NULL, 0, ACL_FORMAT_NCL, small, 3, numbers(2));
    aclTensor *out = aclCreateTensor(large, 3, ACL_FLOAT, NULL, 0, ACL_FORMAT_NCL, large, 3, numbers(30));
    NEED(aclnnAvgPool2dBackwardGetWorkspaceSize(grad, out, aclCreateIntArray(kernel, 2), NULL,
                                                aclCreateIntArray(none, 1), false, true, 0, 3, out, size, &executor));
    need(*size > 7, "to need a workspace");
    return executor;
}
