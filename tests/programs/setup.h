/* What the programs share. A faulty program ends with 0 when its faulty call succeeds, with 1 when
 * that fails; 2 means that the program did not get there. */
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

/* Run an average gradient of (2,1,1,3) to (2,1,5,7) with this gradOutput memory; its status. */
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
