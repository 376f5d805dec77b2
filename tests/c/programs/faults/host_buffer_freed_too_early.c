/* says: aclrtFreeHost: hostPtr is 0x*, memory that aclrtMemcpyAsync writes (dst) on stream 1, and the program has not waited for that; call aclrtSynchronizeStream first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    void *host = NULL;
    begin();
    NEED(aclrtMallocHost(&host, 12));
    NEED(aclrtMemcpyAsync(host, 12, numbers(3), 12, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    return aclrtFreeHost(host) != 0;
}
