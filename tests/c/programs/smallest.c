/* The smallest program. It prints whether libtorch was loaded. */
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"

int main(void) {
    char line[4096];
    int status = aclInit(NULL), heavy = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps)) heavy |= strstr(line, "/libtorch") != NULL;
    if (maps != NULL) fclose(maps);
    printf("status %d, torch %s, message %s\n", status, heavy ? "loaded" : "absent", aclGetRecentErrMsg());
    return status != 0 || aclFinalize() != 0;
}
