/* says: aclrtMemcpy: src is 0x*, memory that aclrtMemcpyAsync writes (dst) on stream 1, and the program has not waited for that; call aclrtSynchronizeStream first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    float *host = numbers_later(3);
    int failed = aclrtMemcpy(device(12), 12, host, 12, ACL_MEMCPY_HOST_TO_DEVICE) != 0;
    NEED(aclrtSynchronizeStream(stream));
    return failed;
}
