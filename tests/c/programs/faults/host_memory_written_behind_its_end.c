/* says: aclrtFreeHost: hostPtr is 0x*, a block of 12 bytes of host memory, and the host wrote to 4 bytes behind its end; it must write inside.
   warn: goes on */
#include "../setup.h"
int main(void) {
    void *host = NULL;
    begin();
    NEED(aclrtMallocHost(&host, 12));
    for (int i = 0; i < 4; i++) ((float *)host)[i] = (float)(i + 1);
    return aclrtFreeHost(host) != 0;
}
