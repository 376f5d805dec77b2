/* Memory of aclrtMallocHost in a program that closes all descriptors, may write no large files and queues many copies
 * of parts of one block. The first argument is the number of copies. */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "setup.h"

#define PART 8192

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **arguments) {
    const struct rlimit limit = {4096, 4096};
    const size_t copies = count > 1 ? strtoul(arguments[1], NULL, 10) : 1;
    char *first = NULL, *host = NULL, *back = NULL;
    char *const name = arguments[2];
    int wrong = 0;
    setrlimit(RLIMIT_FSIZE, &limit);
    begin();
    NEED(aclrtMallocHost((void **)&first, PART));
    for (int file = 3; file < 100; file++) close(file);
    for (int file = 3; file < 40; file++) need(open(name, O_RDWR | O_CREAT, 0600) >= 0, "open");
    need(write(3, "mine", 4) == 4, "write");

    NEED(aclrtMallocHost((void **)&host, copies * PART));
    NEED(aclrtMallocHost((void **)&back, copies * PART));
    for (size_t i = 0; i < copies; i++) memset(host + i * PART, (int)(i % 251), PART);
    char *const block = device(copies * PART);
    const double start = seconds();
    for (size_t i = 0; i < copies * PART; i += PART)
        NEED(aclrtMemcpyAsync(block + i, PART / 2, host + i, PART / 2, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    const double queued = seconds() - start;
    for (size_t i = 0; i < copies * PART; i += PART)
        NEED(aclrtMemcpyAsync(back + i, PART / 2, block + i, PART / 2, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    NEED(aclrtSynchronizeStream(stream));
    for (size_t i = 0; i < copies * PART; i += PART) wrong += memcmp(back + i, host + i, PART / 2) != 0;
    fprintf(stdout, "%d wrong, own file %s, %s\n", wrong, lseek(3, 0, SEEK_END) < PART ? "kept" : "grown",
            queued < 5 ? "fast" : "slow");
    fprintf(stderr, "%.2f s\n", queued);
    return aclrtFree(block) || aclrtFreeHost(first) || aclrtFreeHost(host) || aclrtFreeHost(back);
}
