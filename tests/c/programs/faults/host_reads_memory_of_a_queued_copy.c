/* says: the host read 0x*, byte 4 of a block of 12 bytes of aclrtMallocHost, which aclrtMemcpyAsync writes (dst) on stream 1, and the program has not waited for that; call aclrtSynchronizeStream first.
   warn: is told */
#include "../setup.h"
int main(void) {
    begin();
    float *host = numbers_later(3);
    volatile float early = host[1];
    (void)early;
    NEED(aclrtSynchronizeStream(stream));
    need(host[1] == 2, "to read the copy");
    return 0;
}
