/* Preloaded: after fail_allocation(n), the calling thread's nth allocation from then on fails, once. Starting a thread
 * counts as an allocation too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static __thread long left; /* allocations up to the one that fails; 0 or less: none fails */

/* Returns whether an allocation has failed since the last call. */
int fail_allocation(long n) {
    const int failed = left < 0;
    left = n;
    return failed;
}

static int fails(void) {
    if (left <= 0 || --left > 0) return 0;
    left = -1;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return fails() ? NULL : __libc_realloc(block, size); }
void *memalign(size_t align, size_t size) { return fails() ? NULL : __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { return fails() ? NULL : __libc_memalign(align, size); }
int posix_memalign(void **block, size_t align, size_t size) {
    return fails() || (*block = __libc_memalign(align, size)) == NULL ? ENOMEM : 0;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (create == NULL) create = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))(uintptr_t)dlsym(RTLD_NEXT, "pthread_create");
    return fails() ? EAGAIN : create(thread, attributes, run, argument);
}
