/* The runtime calls around the pools: two devices, rows, registered memory, callbacks, errors, profiling. */
#include <pthread.h>
#include <string.h>

#include "acl/acl_prof.h"
#include "setup.h"

static int called, failed_status;
static uint32_t failed_stream;
static volatile int stop;

static void on_callback(void *data) { called += *(int *)data; }

static float *pinned, seen;
static void on_copied(void *nothing) { (void)nothing, seen = pinned[0]; }  /* its stream has copied before */

static void on_failure(aclrtExceptionInfo *info) {
    failed_status = (int)aclrtGetErrorCodeFromExceptionInfo(info);
    failed_stream = aclrtGetStreamIdFromExceptionInfo(info);
    need(aclrtGetTaskIdFromExceptionInfo(info) != 0xFFFFFFFF, "a task");
    need(aclrtGetThreadIdFromExceptionInfo(info) != 0xFFFFFFFF, "a thread");
    need(aclrtGetDeviceIdFromExceptionInfo(info) == 0, "a device");
}

static void *report(void *nothing) {
    NEED(aclrtSetDevice(0));
    while (!stop) aclrtProcessReport(10);
    NEED(aclrtResetDevice(0));
    return nothing;
}

static void two_devices(void) {
    int32_t device = -1, can = 0;
    uint32_t count = 0;
    aclrtDeviceStatus status;
    float got[3];
    NEED(aclrtGetDeviceCount(&count));
    need(count == 2, "two devices");
    NEED(aclrtDeviceCanAccessPeer(&can, 0, 1));
    need(can == 1, "access to the peer");
    NEED(aclrtQueryDeviceStatus(1, &status));
    need(status == ACL_RT_DEVICE_STATUS_NORMAL, "a normal device");
    void *here = numbers(3);
    NEED(aclrtSetDevice(1));
    NEED(aclrtGetDevice(&device));
    need(device == 1, "device 1");
    NEED(aclrtDeviceEnablePeerAccess(0, 0));
    void *there = device == 1 ? numbers(3) : NULL;
    NEED(aclrtMemcpy(there, 12, here, 12, ACL_MEMCPY_DEVICE_TO_DEVICE));
    NEED(aclrtMemcpy(got, 12, there, 12, ACL_MEMCPY_DEVICE_TO_HOST));
    need(got[2] == 3, "the copy");
    NEED(aclrtDeviceDisablePeerAccess(0));
    NEED(aclrtFree(there));
    NEED(aclrtResetDeviceForce(1));
    NEED(aclrtSetDevice(0));
    NEED(aclrtFree(here));
}

static void rows(void) {
    const char source[] = "abcdefghijkl";
    char target[12];
    void *block = device(24);
    memset(target, '.', sizeof target);
    NEED(aclrtMemset(block, 24, 0, 24));
    NEED(aclrtMemcpy2d(block, 8, source, 4, 3, 3, ACL_MEMCPY_HOST_TO_DEVICE));
    NEED(aclrtMemcpy2dAsync(target, 4, block, 8, 3, 3, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    need(memcmp(target, "abc.efg.ijk.", 12) == 0, "the rows");
    need(aclrtMemcpy2d(block, 2, source, 4, 3, 3, ACL_MEMCPY_HOST_TO_DEVICE) != 0, "to refuse the pitch");
    need(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL) == ACL_ERROR_RT_PARAM_INVALID, "the last error");
    need(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == ACL_ERROR_RT_PARAM_INVALID, "the last error");
    need(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == 0, "no last error");
    NEED(aclrtFree(block));
}

static void registered_memory(void) {
    float *host = NULL;
    void *mapped = NULL;
    aclrtMallocConfig none = {NULL, 0};
    NEED(aclrtMallocHostWithCfg((void **)&host, 6 * sizeof(float), &none));
    for (int i = 0; i < 6; i++) host[i] = (float)i;
    NEED(aclrtHostRegister(host, 6 * sizeof(float), ACL_HOST_REGISTER_MAPPED, &mapped));
    need(gradient(mapped) == 0, "a kernel that reads registered memory");
    need(aclrtMemcpy(mapped, 4, host, 4, ACL_MEMCPY_HOST_TO_DEVICE) != 0, "to refuse a copy");
    need(aclGetRecentErrMsg() != NULL, "a message");
    NEED(aclrtHostUnregister(host));
    NEED(aclrtFreeHost(host));
}

static void callbacks(void) {
    pthread_t thread;
    int32_t id = -1;
    int one = 1, two = 2;
    NEED(aclrtStreamGetId(stream, &id));
    need(pthread_create(&thread, NULL, report, NULL) == 0, "pthread_create");
    NEED(aclrtSubscribeReport((uint64_t)thread, stream));
    NEED(aclrtLaunchCallback(on_callback, &one, ACL_CALLBACK_BLOCK, stream));
    NEED(aclrtLaunchCallback(on_callback, &two, ACL_CALLBACK_BLOCK, stream));
    NEED(aclrtSynchronizeStream(stream));
    need(called == 3, "both callbacks");
    NEED(aclrtUnSubscribeReport((uint64_t)thread, stream));
    const float three = 3;
    void *block = device(4);
    NEED(aclrtMallocHost((void **)&pinned, 4));
    NEED(aclrtMemset(pinned, 4, 0, 4));
    NEED(aclrtMemcpy(block, 4, &three, 4, ACL_MEMCPY_HOST_TO_DEVICE));
    NEED(aclrtSubscribeReport((uint64_t)thread, stream)); /* again: the thread waits all the time */
    NEED(aclrtMemcpyAsync(pinned, 4, block, 4, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    NEED(aclrtLaunchCallback(on_copied, NULL, ACL_CALLBACK_BLOCK, stream));
    NEED(aclrtSynchronizeStream(stream));
    need(seen == 3, "a callback reads what was copied before it");
    NEED(aclrtUnSubscribeReport((uint64_t)thread, stream));
    NEED(aclrtFree(block));
    NEED(aclrtFreeHost(pinned));
    stop = 1;
    pthread_join(thread, NULL);
    NEED(aclrtSetExceptionInfoCallback(on_failure));
    void *unwritten = device(24);
    need(gradient(unwritten) != 0, "a failed job");
    need(aclGetRecentErrMsg() != NULL, "a message");
    need(failed_status == ACL_ERROR_INTERNAL_ERROR && failed_stream == (uint32_t)id, "the exception");
    need(aclrtGetTaskIdFromExceptionInfo(NULL) == 0xFFFFFFFF, "no exception");
    NEED(aclrtSetExceptionInfoCallback(NULL));
    NEED(aclrtFree(unwritten));
}

static void profiling(void) {
    uint32_t devices[] = {0};
    NEED(aclprofInit("/tmp", 4));
    aclprofConfig *config = aclprofCreateConfig(devices, 1, ACL_AICORE_PIPE_UTILIZATION, NULL, ACL_PROF_TASK_TIME);
    need(config != NULL, "aclprofCreateConfig");
    NEED(aclprofStart(config));
    NEED(aclprofStop(config));
    NEED(aclprofDestroyConfig(config));
    NEED(aclprofFinalize());
}

int main(void) {
    setenv("POOLTIDE_DEVICES", "2", 1);
    begin();
    two_devices();
    rows();
    registered_memory();
    callbacks();
    profiling();
    NEED(aclrtSetOpExecuteTimeOut(3));
    NEED(aclrtDestroyStream(stream));
    NEED(aclrtResetDeviceForce(0));
    NEED(aclFinalize());
    puts("done");
    return 0;
}
