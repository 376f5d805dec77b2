/* Calls of a program that has opened all the files that it may. */
#include <fcntl.h>

#include "setup.h"

int main(void) {
    aclrtStream another = NULL;
    aclrtEvent event = NULL;
    float host[6] = {0};
    begin();
    while (open("/dev/null", O_RDONLY) >= 0) {}
    void *const block = numbers(6);
    printf("gradient %d\n", gradient(block));
    printf("copy %d\n", aclrtMemcpy(host, sizeof host, block, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST));
    printf("fill %d\n", aclrtMemset(block, sizeof host, 0, sizeof host));
    printf("copy later %d\n", aclrtMemcpyAsync(block, sizeof host, host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    printf("event %d\n", aclrtCreateEvent(&event) || aclrtRecordEvent(event, stream) || aclrtSynchronizeEvent(event));
    printf("stream %d\n", aclrtCreateStream(&another));
    printf("message %s\n", aclGetRecentErrMsg());
    return aclrtFree(block) || aclrtSynchronizeStream(stream);
}
