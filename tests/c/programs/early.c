/* The calls that are answered before the package is imported, in the order that the argument gives: I for aclInit,
 * F for aclFinalize, J for aclInit with a file that does not exist, M for aclGetRecentErrMsg, D for aclrtSetDevice.
 * Prints the status of each, and for M whether there is a message. */
#include <stdio.h>

#include "acl/acl.h"

int main(int count, char **arguments) {
    for (const char *call = count == 2 ? arguments[1] : ""; *call; call++) {
        switch (*call) {
            case 'I': printf("%d ", aclInit(NULL)); break;
            case 'J': printf("%d ", aclInit("/nowhere/acl.json")); break;
            case 'F': printf("%d ", aclFinalize()); break;
            case 'D': printf("%d ", aclrtSetDevice(0)); break;
            default: printf("%s ", aclGetRecentErrMsg() ? "message" : "none");
        }
    }
    return 0;
}
