/* says: aclrt*: this thread called neither aclrtSetDevice nor aclrtSetCurrentContext; each must, at first.
   warn: goes on */
#include "../setup.h"
#include <pthread.h>

static void *allocate(void *nothing) {
    void *block = NULL;
    (void)nothing;
    return aclrtMalloc(&block, 4, ACL_MEM_MALLOC_HUGE_FIRST) ? &stream : NULL;
}

int main(void) {
    pthread_t thread;
    void *failed = NULL;
    begin();
    need(pthread_create(&thread, NULL, allocate, NULL) == 0, "pthread_create");
    pthread_join(thread, &failed);
    return failed != NULL;
}
