/* says: the host read 0x*, byte 4 of a block of 12 bytes of aclrtMallocHost, which aclrtMemcpyAsync writes (dst) on stream 1, and the program has not waited for that; call aclrtSynchronizeStream first.
   warn: is told */
#include "../setup.h"
int main(void) {
    void *host = NULL;
    begin();
    NEED(aclrtMallocHost(&host, 12));
    NEED(aclrtMemcpyAsync(host, 12, numbers(3), 12, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    volatile float early = ((float *)host)[1];
    (void)early;
    NEED(aclrtSynchronizeStream(stream));
    need(((float *)host)[1] == 2, "to read the copy");
    return 0;
}
