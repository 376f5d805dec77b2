/* A child of a process that has called the runtime must get an error, not hang; the parent goes on. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"

int main(void) {
    void *block = NULL;
    int status = 0;
    if (aclInit(NULL) != ACL_SUCCESS || aclrtSetDevice(0) != ACL_SUCCESS) return 2;
    pid_t child = fork();
    if (child == 0) {
        int failed = aclrtMalloc(&block, 12, ACL_MEM_MALLOC_HUGE_FIRST);
        const char *message = aclGetRecentErrMsg();
        printf("child: %d %s\n", failed, message ? message : "no message");
        return failed == 0 || block != NULL;
    }
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 1;
    if (aclrtMalloc(&block, 12, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) return 1;
    return aclrtFree(block) != ACL_SUCCESS || aclFinalize() != ACL_SUCCESS;
}
