/* One thread makes the first call while another forks again and again: each child's call succeeds, or
 * fails with a status and a message, at once. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"

static void *first_call(void *status) {
    *(int *)status = aclInit(NULL);
    return NULL;
}

int main(void) {
    pthread_t thread;
    int first = -1, hung = 0, wrong = 0, refused = 0;
    if (pthread_create(&thread, NULL, first_call, &first)) return 2;
    for (int i = 0; i < 30; i++) {
        usleep(4000);
        pid_t child = fork();
        if (child == 0) {
            alarm(5);
            int status = aclInit(NULL);
            const char *message = aclGetRecentErrMsg();
            return status == 0 ? 0 : status == 500000 && message != NULL ? 1 : 2;
        }
        int end = 0;
        waitpid(child, &end, 0);
        hung += WIFSIGNALED(end);
        wrong += WIFEXITED(end) && WEXITSTATUS(end) > 1;
        refused += WIFEXITED(end) && WEXITSTATUS(end) == 1;
    }
    pthread_join(thread, NULL);
    printf("first call %d, %d children hung, %d wrong, %s refused\n", first, hung, wrong, refused ? "some" : "none");
    return 0;
}
