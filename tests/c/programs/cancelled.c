/* Threads that are cancelled while they call the runtime; afterwards the main thread calls. No call of the runtime is
 * a cancellation point. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "acl/acl.h"

static void *work(void *asynchronous) {
    int before;
    void *block = NULL;
    if (asynchronous) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    for (;;) {
        if (aclrtSetDevice(0) || aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST) || aclrtFree(block)) return work;
        aclrtFree(block);  /* refused, which writes a line */
        pthread_testcancel();
    }
}

int main(void) {
    void *block = NULL, *end = NULL;
    int cancelled = 0, state;
    if (aclInit(NULL) || aclrtSetDevice(0)) return 2;
    for (int round = 0; round < 40; round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, round % 2 ? &cancelled : NULL);
        usleep((useconds_t)(round * 500));
        pthread_cancel(thread);
        pthread_join(thread, &end);
        cancelled += end == PTHREAD_CANCELED;
    }
    const int after = aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST) || aclrtFree(block);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    printf("%d cancelled, then status %d, cancellation %s\n", cancelled, after,
           state == PTHREAD_CANCEL_ENABLE ? "enabled" : "disabled");
    return aclFinalize();
}
