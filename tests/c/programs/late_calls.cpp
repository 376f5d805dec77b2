// Calls the runtime where a program ends: late_calls WHERE, one of
//     static   the destructor of a global object
//     atexit   a handler of atexit
//     local    the destructors of thread_local objects, of the main thread and of another one
//     key      the destructor of a thread's key
//     flight   the destructor of a global object, with jobs that no one has waited for
// Each of them computes a gradient again and prints whether it has the bits of the first one.
#include <cstring>
#include <pthread.h>
#include <string>
#include <thread>

#include "setup.h"

static const int MANY = 64;  // jobs in flight
static std::string where;
static float first[70];
static void *source;
static bool computed = false;  // `first` has the result

static void compute(float *result, int jobs) {
    void *const block = device(sizeof first);
    aclTensor *const grad = volume(2, 1, 1, 3, source), *const out = volume(2, 1, 5, 7, block);
    for (int i = 0; i < jobs; i++) NEED(aclnnAdaptiveAvgPool3dBackward(nullptr, 0, plan(grad, out, out), stream));
    NEED(aclrtSynchronizeStream(stream));
    NEED(aclrtMemcpy(result, sizeof first, block, sizeof first, ACL_MEMCPY_DEVICE_TO_HOST));
    aclDestroyTensor(grad);
    aclDestroyTensor(out);
    NEED(aclrtFree(block));
}

static void compute_late(const char *name) {
    float again[70];
    NEED(aclrtSetDevice(0));
    compute(again, where == "flight" ? MANY : 1);
    std::printf("%s: %s\n", name, std::memcmp(again, first, sizeof first) == 0 ? "right" : "wrong");
    std::fflush(stdout);
}

struct Late {
    const char *name;
    ~Late() {
        const bool wanted = where == name || (where == "flight" && !std::strcmp(name, "static"));
        if (computed && wanted) compute_late(name);
    }
};

static Late object{"static"};
static thread_local Late local{"local"};  // made before the library's own, so that it is destroyed after them
static pthread_key_t key;

static void thread() {
    float again[70];
    if (where == "key") pthread_setspecific(key, &key);
    if (local.name == nullptr) return;
    NEED(aclrtSetDevice(0));
    compute(again, 1);
}

int main(int argc, char **argv) {
    if (argc < 2 || local.name == nullptr) return 2;
    where = argv[1];
    pthread_key_create(&key, [](void *) { compute_late("key"); });
    if (where == "atexit") std::atexit([] { compute_late("atexit"); });
    begin();
    source = numbers(6);
    compute(first, 1);
    computed = true;
    if (where == "local" || where == "key") std::thread(thread).join();
    if (where != "flight") return 0;
    aclTensor *const grad = volume(2, 1, 1, 3, source), *const out = volume(2, 1, 5, 7, device(sizeof first));
    for (int i = 0; i < MANY; i++) NEED(aclnnAdaptiveAvgPool3dBackward(nullptr, 0, plan(grad, out, out), stream));
}
