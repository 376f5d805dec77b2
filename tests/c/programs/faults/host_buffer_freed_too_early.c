/* says: aclrtFreeHost: hostPtr is 0x*, memory that aclrtMemcpyAsync writes (dst) on stream 1, and the program has not waited for that; call aclrtSynchronizeStream first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    float *host = numbers_later(3);
    return aclrtFreeHost(host) != 0;
}
