/* One thread makes the first call while the main thread forks children, at least 30 of them and until
 * the first call has returned. The call of each child must succeed, or fail with a status and a message. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"

static atomic_int returned;

static void *first_call(void *status) {
    *(int *)status = aclInit(NULL);
    returned = 1;
    return NULL;
}

int main(void) {
    pthread_t thread;
    int first = -1, hung = 0, wrong = 0, refused = 0;
    if (pthread_create(&thread, NULL, first_call, &first)) return 2;
    for (int i = 0; i < 30 || !returned; i++) {
        usleep(4000);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
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
