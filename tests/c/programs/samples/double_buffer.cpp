// Two buffers and two streams: while one stream computes on a buffer, the other copies the next batch into the
// other buffer. Events keep the order; the time of all batches is measured by two more events.
#include <cstring>

#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
#include "threads.h"

static const int BATCHES = 12;
static const int64_t SMALL = 2 * 3, LARGE = 2 * 3 * 4;  // floats: each cell becomes four

static int work(int thread) {
    const int64_t small[] = {2, 1, 1, 3}, large[] = {2, 1, 4, 3};
    aclrtContext context;
    CHECK(aclrtCreateContext(&context, 0));
    aclrtStream copying, computing;
    CHECK(aclrtCreateStreamWithConfig(&copying, 0, ACL_STREAM_FAST_LAUNCH));
    CHECK(aclrtCreateStream(&computing));
    aclrtEvent begin, end, filled[2], used[2];
    CHECK(aclrtCreateEvent(&begin));
    CHECK(aclrtCreateEvent(&end));
    void *input[2], *output[2];
    float *host_input = nullptr, *host_output = nullptr;
    aclTensor *grad[2], *out[2];
    for (int b = 0; b < 2; b++) {
        CHECK(aclrtCreateEventWithFlag(&filled[b], ACL_EVENT_SYNC));
        CHECK(aclrtCreateEventWithFlag(&used[b], ACL_EVENT_SYNC));
        CHECK(aclrtMalloc(&input[b], SMALL * 4, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclrtMalloc(&output[b], LARGE * 4, ACL_MEM_MALLOC_HUGE_FIRST));
        grad[b] = aclCreateTensor(small, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, small, 4, input[b]);
        out[b] = aclCreateTensor(large, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, large, 4, output[b]);
    }
    CHECK(aclrtMallocHost(reinterpret_cast<void **>(&host_input), BATCHES * SMALL * 4));
    CHECK(aclrtMallocHost(reinterpret_cast<void **>(&host_output), BATCHES * LARGE * 4));
    for (int i = 0; i < BATCHES * SMALL; i++) host_input[i] = static_cast<float>(4 * (i * 5 % 17 + thread));
    CHECK(aclrtRecordEvent(begin, copying));
    for (int batch = 0; batch < BATCHES; batch++) {
        const int b = batch % 2;
        if (batch >= 2) CHECK(aclrtStreamWaitEvent(copying, used[b]));  // the buffer must be free again
        CHECK(aclrtMemcpyAsync(input[b], SMALL * 4, host_input + batch * SMALL, SMALL * 4, ACL_MEMCPY_HOST_TO_DEVICE, copying));
        CHECK(aclrtRecordEvent(filled[b], copying));
        CHECK(aclrtStreamWaitEvent(computing, filled[b]));
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        CHECK(aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad[b], out[b], out[b], &size, &executor));
        if (size > 0) return 1;
        CHECK(aclnnAdaptiveAvgPool3dBackward(nullptr, 0, executor, computing));
        CHECK(aclrtMemcpyAsync(host_output + batch * LARGE, LARGE * 4, output[b], LARGE * 4, ACL_MEMCPY_DEVICE_TO_HOST, computing));
        CHECK(aclrtRecordEvent(used[b], computing));
    }
    CHECK(aclrtRecordEvent(end, computing));
    CHECK(aclrtSynchronizeEvent(end));
    float ms = -1;
    CHECK(aclrtEventElapsedTime(&ms, begin, end));
    int wrong = !(ms > 0 && ms < 60000);
    for (int i = 0; i < BATCHES * LARGE; i++) {
        const int plane = i / 12, column = i % 3;
        wrong += host_output[i] != host_input[plane * 3 + column] / 4;
    }
    for (int b = 0; b < 2; b++) {
        aclDestroyTensor(grad[b]);
        aclDestroyTensor(out[b]);
        CHECK(aclrtFree(input[b]));
        CHECK(aclrtFree(output[b]));
        CHECK(aclrtDestroyEvent(filled[b]));
        CHECK(aclrtDestroyEvent(used[b]));
    }
    for (float *block : {host_input, host_output}) CHECK(aclrtFreeHost(block));
    for (aclrtEvent event : {begin, end}) CHECK(aclrtDestroyEvent(event));
    for (aclrtStream stream : {copying, computing}) CHECK(aclrtSynchronizeStream(stream));
    for (aclrtStream stream : {copying, computing}) CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtDestroyContext(context));
    return wrong;
}
