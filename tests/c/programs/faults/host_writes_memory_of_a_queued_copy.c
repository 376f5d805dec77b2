/* says: the host wrote to 0x*, byte 0 of a block of 12 bytes of aclrtMallocHost, which aclrtMemcpyAsync reads (src) on stream 1, and the program has not waited for that; call aclrtSynchronizeStream first.
   warn: is told */
#include "../setup.h"
#include <string.h>
int main(void) {
    void *host = NULL;
    begin();
    NEED(aclrtMallocHost(&host, 12));
    memset(host, 1, 12);
    NEED(aclrtMemcpyAsync(device(12), 12, host, 12, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    need(((char *)host)[5] == 1, "to read what the copy reads");
    ((float *)host)[0] = 2;
    NEED(aclrtSynchronizeStream(stream));
    return 0;
}
