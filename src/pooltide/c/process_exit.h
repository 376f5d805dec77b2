/* The end of a process whose main thread calls pthread_exit.
 *
 * Such a process ends when its last thread ends, but the threads of streams, kernels and NumPy's linear
 * algebra never end. So, after the end of the main thread, a watcher lists the threads every few
 * milliseconds. When only threads of the library are left, the watcher calls exit(0), as the C library
 * would. The watcher knows the library's threads by their name: a new thread inherits the name of the
 * thread that creates it. */

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define THREAD_NAME "[pooltide]"  /* of every thread of the library; acl/stream_queue.py has it too */
#define WATCH_US 5000             /* between two listings */
#define LISTINGS 3                /* equal ones in a row: one may miss a thread that is starting */

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

/* Whether the thread is the library's, or is the main thread and has ended. */
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

/* The sum of the ids of all threads if all are the library's; 0 if some are the program's;
 * -1 if /proc can't be read. */
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
    for (int listings = 0; listings < LISTINGS; last = sum) {
        usleep(WATCH_US);
        sum = only_ours();
        if (sum < 0) return nothing;
        listings = sum == 0 ? 0 : sum == last ? listings + 1 : 1;
    }
    exit(0);
}

/* Call this once the main thread has ended and the library has threads. */
static void start_watcher(void) {
    pthread_t thread;
    sigset_t all, mask;
    if (__atomic_exchange_n(&watched, 1, __ATOMIC_SEQ_CST)) return;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask);  /* the program's threads handle its signals */
    if (pthread_create(&thread, NULL, watch, NULL) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

/* Call `ends` when the main thread ends, if the calling thread is the main thread. */
static void watch_main_thread(void (*ends)(void *)) {
    if (pthread_key_create(&main_thread_key, ends) == 0 && syscall(SYS_gettid) == getpid())
        pthread_setspecific(main_thread_key, &main_thread_key);
}
