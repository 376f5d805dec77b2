/* A process that forks before its first call: parent and child can both use the runtime. */
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"

int main(void) {
    int status = 0;
    pid_t child = fork();
    if (aclInit(NULL) != ACL_SUCCESS || aclFinalize() != ACL_SUCCESS) return 1;
    if (child == 0) return 0;
    waitpid(child, &status, 0);
    return status != 0;
}
