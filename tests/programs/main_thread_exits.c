/* The main thread ends by pthread_exit; the process ends, with status 0, when the program's last thread
 * does, and no sooner. The argument says what the program does before: "idle" makes no call,
 * "late" makes its first call after the main thread's end, "busy" computes, "streams" leaves two. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "setup.h"

static const char *what = "busy";

static void *work(void *nothing) {
    usleep(200000);
    if (strcmp(what, "late") == 0) begin();
    if (strcmp(what, "busy") == 0) need(gradient(numbers(6)) == 0, "gradient");
    usleep(200000);
    puts("the last thread ended");
    return nothing;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count == 2) what = arguments[1];
    if (strcmp(what, "busy") == 0 || strcmp(what, "streams") == 0) begin();
    if (strcmp(what, "streams") == 0) NEED(aclrtCreateStream(&stream));
    if (pthread_create(&thread, NULL, work, NULL) || pthread_detach(thread)) return 2;
    pthread_exit(NULL);
}
