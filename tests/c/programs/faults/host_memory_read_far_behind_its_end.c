/* says: the host read 0x*, 4 bytes after the end of a block of 4096 bytes of aclrtMallocHost; it must stay inside
   warn: dies */
#include "../setup.h"
int main(void) {
    void *host = NULL;
    begin();
    NEED(aclrtMallocHost(&host, 4096));
    return ((volatile float *)host)[1025] != 0;
}
