/* says: the host wrote to 0x*, host memory of aclrtMallocHost that was freed; it must not be used
   warn: dies */
#include "../setup.h"
int main(void) {
    void *host = NULL;
    begin();
    NEED(aclrtMallocHost(&host, 4096));
    NEED(aclrtFreeHost(host));
    ((volatile float *)host)[0] = 1;
    return 0;
}
