// main() of the samples: runs `work` in as many threads as the argument says. Each thread checks its own
// results and returns the number of wrong ones.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "acl/acl.h"

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        const int status_ = (call);                                                                   \
        if (status_ != 0) {                                                                           \
            const char *message_ = aclGetRecentErrMsg();                                              \
            std::printf("%s: %d %s\n", #call, status_, message_ ? message_ : "");                     \
            std::exit(2);                                                                             \
        }                                                                                             \
    } while (0)

static int work(int thread);

int main(int count, char **arguments) {
    const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
    CHECK(aclInit(nullptr));
    std::vector<int> wrong(static_cast<size_t>(threads), -1);
    std::vector<std::thread> running;
    for (int n = 0; n < threads; n++)
        running.emplace_back([n, &wrong] {
            CHECK(aclrtSetDevice(0));
            wrong[static_cast<size_t>(n)] = work(n);
        });
    for (std::thread &thread : running) thread.join();
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    int all = 0;
    for (int n : wrong) all += n;
    std::printf("%d threads, %d wrong\n", threads, all);
    return all != 0;
}
