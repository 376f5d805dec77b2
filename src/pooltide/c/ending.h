/* How a process ends whose main thread calls pthread_exit.
 *
 * Such a process ends when its last thread ends. The library's threads never do: streams, kernels
 * and NumPy's linear algebra keep theirs. So, once the main thread is gone, a watcher lists the
 * threads every few milliseconds, and calls exit(0), as the C library would, when only threads of
 * the library are left. They are known by their name, which a new thread inherits from the thread
 * that creates it. */

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define THREAD_NAME "[pooltide]"  /* of every thread of the library; acl/stream.py has it too */
#define WATCH_US 5000             /* between two looks */
#define LOOKS 3                   /* in a row that must agree: one look may miss a thread that starts */

static int main_ended, watched;       /* atomic */
static pthread_key_t main_thread_key; /* its destructor runs when the main thread ends */

/* The text of /proc/self/task/THREAD/FILE; empty when the thread has just ended. */
static void read_task(const char *thread, const char *file, char *text, size_t size) {
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/%s", thread, file);
    FILE *stream = fopen(path, "r");
    size_t length = stream ? fread(text, 1, size - 1, stream) : 0;
    text[length] = 0;
    if (stream) fclose(stream);
}

static int is_ours(const char *thread) {
    char text[512];
    if (atoi(thread) == getpid()) {  /* a main thread that has ended stays listed, as a zombie */
        read_task(thread, "stat", text, sizeof text);
        const char *name_end = strrchr(text, ')');
        return name_end != NULL && strncmp(name_end, ") Z", 3) == 0;
    }
    read_task(thread, "comm", text, sizeof text);
    return strcmp(text, THREAD_NAME "\n") == 0;
}

/* The sum of the numbers of all threads when all are the library's; 0 when the program has some;
 * -1 when the system does not tell. */
static long only_ours(void) {
    long sum = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) return -1;
    for (struct dirent *task; sum >= 0 && (task = readdir(tasks)) != NULL;)
        if (task->d_name[0] != '.') sum = is_ours(task->d_name) ? sum + atol(task->d_name) : -1;
    closedir(tasks);
    return sum < 0 ? 0 : sum;
}

static void *watch(void *nothing) {
    long sum, last = 0;
    prctl(PR_SET_NAME, THREAD_NAME);
    for (int looks = 0; looks < LOOKS; last = sum) {
        usleep(WATCH_US);
        sum = only_ours();
        if (sum < 0) return nothing;
        looks = sum == 0 ? 0 : sum == last ? looks + 1 : 1;
    }
    exit(0);
}

/* Call this once the main thread has ended and the library has threads. */
static void start_watcher(void) {
    pthread_t thread;
    sigset_t all, mask;
    if (__atomic_exchange_n(&watched, 1, __ATOMIC_SEQ_CST)) return;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask);  /* the program's signals are for its own threads */
    if (pthread_create(&thread, NULL, watch, NULL) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

/* Remember the main thread, if this is it. */
static void know_main_thread(void (*ends)(void *)) {
    if (pthread_key_create(&main_thread_key, ends) == 0 && syscall(SYS_gettid) == getpid())
        pthread_setspecific(main_thread_key, &main_thread_key);
}
