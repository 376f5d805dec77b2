/* says: aclrtMemcpy: src has 12 bytes that were never written, the first at byte 0 of a block of 12 bytes at 0x*; they must be written before they are read.
   warn: goes on */
#include "../setup.h"
int main(void) {
    float host[3];
    begin();
    return aclrtMemcpy(host, sizeof host, device(12), 12, ACL_MEMCPY_DEVICE_TO_HOST) != 0;
}
