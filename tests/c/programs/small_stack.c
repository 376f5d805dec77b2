/* Threads with stacks of some KB call the runtime: small_stack KB... */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>

#include "setup.h"

static void *work(void *result) {
    aclrtStream made = NULL;
    void *block = NULL;
    const int status = aclrtSetDevice(0);
    *(int *)result = status;
    if (status) return result;
    NEED(aclrtCreateStream(&made));
    stream = made;
    block = numbers(6);
    if (gradient(block)) *(int *)result = -1;
    NEED(aclrtFree(block));
    NEED(aclrtDestroyStream(made));
    return result;
}

int main(int count, char **sizes) {
    for (int i = 1; i < count; i++) {
        int status = -2;
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        if (pthread_attr_setstacksize(&attributes, (size_t)atoi(sizes[i]) << 10)) return 2;
        if (pthread_create(&thread, &attributes, work, &status)) return 2;
        pthread_join(thread, NULL);
        printf("%s KB: status %d\n", sizes[i], status);
        fflush(stdout);
    }
    return 0;
}
