// A training step: the model is an adaptive max pool of learned planes, and the loss is half the squared distance
// to a target. The device computes the forward, its indices and the gradient; the host updates the planes.
#include "aclnnop/aclnn_adaptive_max_pool2d.h"
#include "aclnnop/aclnn_adaptive_max_pool2d_backward.h"
#include "threads.h"

static const int64_t C = 3, H = 6, W = 10, HO = 3, WO = 5;

struct Buffer {
    void *device = nullptr, *host = nullptr;
    size_t bytes;
    explicit Buffer(size_t bytes) : bytes(bytes) {
        CHECK(aclrtMalloc(&device, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclrtMallocHost(&host, bytes));
    }
    float &operator[](int64_t i) { return static_cast<float *>(host)[i]; }
    void upload(aclrtStream stream) { CHECK(aclrtMemcpyAsync(device, bytes, host, bytes, ACL_MEMCPY_HOST_TO_DEVICE, stream)); }
    void download(aclrtStream stream) { CHECK(aclrtMemcpyAsync(host, bytes, device, bytes, ACL_MEMCPY_DEVICE_TO_HOST, stream)); }
    void release() {
        CHECK(aclrtFree(device));
        CHECK(aclrtFreeHost(host));
    }
};

static aclTensor *tensor(int64_t h, int64_t w, aclDataType type, void *data) {
    const int64_t dims[] = {C, h, w};
    return aclCreateTensor(dims, 3, type, nullptr, 0, ACL_FORMAT_NCL, dims, 3, data);
}

static void *workspace_of(uint64_t size) {
    void *made = nullptr;
    if (size > 0) CHECK(aclrtMalloc(&made, size, ACL_MEM_MALLOC_HUGE_FIRST));
    return made;
}

static int work(int thread) {
    const int64_t output_size[] = {HO, WO}, cells = C * H * W, windows = C * HO * WO;
    aclrtStream stream;
    CHECK(aclrtCreateStream(&stream));
    Buffer planes(cells * 4), pooled(windows * 4), indices(windows * 8), grad(windows * 4), update(cells * 4);
    aclTensor *x = tensor(H, W, ACL_FLOAT, planes.device), *y = tensor(HO, WO, ACL_FLOAT, pooled.device);
    aclTensor *i = tensor(HO, WO, ACL_INT64, indices.device), *dy = tensor(HO, WO, ACL_FLOAT, grad.device);
    aclTensor *dx = tensor(H, W, ACL_FLOAT, update.device);
    aclIntArray *size = aclCreateIntArray(output_size, 2);
    for (int64_t n = 0; n < cells; n++) planes[n] = static_cast<float>(n * 13 % 29) / 29;
    float first = 0, last = 0;
    for (int step = 0; step < 60; step++) {
        uint64_t bytes = 0;
        aclOpExecutor *executor = nullptr;
        planes.upload(stream);
        CHECK(aclnnAdaptiveMaxPool2dGetWorkspaceSize(x, size, y, i, &bytes, &executor));
        void *forward_workspace = workspace_of(bytes);
        CHECK(aclnnAdaptiveMaxPool2d(forward_workspace, bytes, executor, stream));
        pooled.download(stream);
        CHECK(aclrtSynchronizeStream(stream));
        last = 0;
        for (int64_t n = 0; n < windows; n++) {
            grad[n] = pooled[n] - static_cast<float>((n * 7 + thread) % 11);
            last += grad[n] * grad[n] / 2;
        }
        if (step == 0) first = last;
        grad.upload(stream);
        CHECK(aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(dy, x, i, dx, &bytes, &executor));
        void *backward_workspace = workspace_of(bytes);
        CHECK(aclnnAdaptiveMaxPool2dBackward(backward_workspace, bytes, executor, stream));
        update.download(stream);
        CHECK(aclrtSynchronizeStream(stream));
        for (int64_t n = 0; n < cells; n++) planes[n] -= 0.5f * update[n];
        if (forward_workspace) CHECK(aclrtFree(forward_workspace));
        if (backward_workspace) CHECK(aclrtFree(backward_workspace));
    }
    for (aclTensor *each : {x, y, i, dy, dx}) CHECK(aclDestroyTensor(each));
    CHECK(aclDestroyIntArray(size));
    for (Buffer *each : {&planes, &pooled, &indices, &grad, &update}) each->release();
    CHECK(aclrtDestroyStream(stream));
    return !(last < first / 10);
}
