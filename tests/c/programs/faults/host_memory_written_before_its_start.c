/* says: aclrtFreeHost: hostPtr is 0x*, a block of 64 bytes of host memory, and the host wrote to 64 bytes before its start; it must write inside.
   warn: goes on */
#include "../setup.h"
int main(void) {
    char *host = NULL;
    begin();
    NEED(aclrtMallocHost((void **)&host, 64));
    for (char *volatile byte = host - 64; byte < host + 64; byte++) *byte = 9;
    return aclrtFreeHost(host) != 0;
}
