/* The steps that every example takes, in C and C++. A step that fails prints why and ends the program. */
#ifndef STEPS_H
#define STEPS_H

#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"

static inline void must(int status, const char *call) {
    if (status == ACL_SUCCESS) return;
    const char *why = aclGetRecentErrMsg();
    fprintf(stderr, "%s returned %d: %s\n", call, status, why ? why : "no reason given");
    exit(1);
}
#define MUST(call) must((call), #call)

/* Device 0 with a new stream. */
static inline aclrtStream start(void) {
    aclrtStream stream = NULL;
    MUST(aclInit(NULL));
    MUST(aclrtSetDevice(0));
    MUST(aclrtCreateStream(&stream));
    return stream;
}

static inline void finish(aclrtStream stream) {
    MUST(aclrtDestroyStream(stream));
    MUST(aclrtResetDevice(0));
    MUST(aclFinalize());
}

/* Device memory; NULL for 0 bytes. */
static inline void *allocate(size_t size) {
    void *block = NULL;
    if (size > 0) MUST(aclrtMalloc(&block, size, ACL_MEM_MALLOC_HUGE_FIRST));
    return block;
}

/* Device memory with a copy of `size` bytes of host memory. */
static inline void *upload(const void *host, size_t size) {
    void *block = allocate(size);
    MUST(aclrtMemcpy(block, size, host, size, ACL_MEMCPY_HOST_TO_DEVICE));
    return block;
}

static inline void download(void *host, const void *block, size_t size) {
    MUST(aclrtMemcpy(host, size, block, size, ACL_MEMCPY_DEVICE_TO_HOST));
}

static inline aclTensor *describe(const int64_t *shape, uint64_t rank, aclDataType type, aclFormat format,
                                  void *block) {
    aclTensor *tensor = aclCreateTensor(shape, rank, type, NULL, 0, format, shape, rank, block);
    must(tensor == NULL, "aclCreateTensor");
    return tensor;
}

/* Ends tensors and memory; each list ends at its first NULL. */
static inline void release(aclTensor *const *tensors, void *const *blocks) {
    for (; *tensors != NULL; tensors++) MUST(aclDestroyTensor(*tensors));
    for (; *blocks != NULL; blocks++) MUST(aclrtFree(*blocks));
}

static inline void print(const float *values, int rows, int columns) {
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            printf("%g%s", values[row * columns + column], column + 1 < columns ? " " : "\n");
}

#endif
