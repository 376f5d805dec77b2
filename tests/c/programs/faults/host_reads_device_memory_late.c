/* says: the host read device memory at 0x*, byte 8 of a block of 12 bytes at 0x*; only aclrtMemcpy may cross to the host (the last call of this thread was aclrtMemcpy).
   warn: dies */
#include "../setup.h"
/* After as many blocks of host memory as fill the addresses that the library reserves. */
int main(void) {
    begin();
    for (int i = 0; i < 5000; i++) {
        void *host = NULL;
        NEED(aclrtMallocHost(&host, 1 << 30));
        NEED(aclrtFreeHost(host));
    }
    return ((volatile float *)numbers(3))[2] == 3;
}
