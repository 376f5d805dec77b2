/* The main thread ends by pthread_exit. The process must end with status 0 when the program's last thread
 * ends, and not earlier. The argument says what the program does: "idle" makes no call, "late" makes its
 * first call after the end of the main thread, "busy" computes, "streams" does not destroy its streams. */
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
