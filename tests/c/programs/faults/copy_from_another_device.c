/* says: aclrtMemcpy: src is 0x*, memory of device 0, and this thread uses device 1; call aclrtSetDevice(0), or aclrtDeviceEnablePeerAccess(0, 0), first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    void *memory = numbers_of_another_device(3);
    void *block = device(12);
    int failed = aclrtMemcpy(block, 12, memory, 12, ACL_MEMCPY_DEVICE_TO_DEVICE) != 0;
    NEED(aclrtDeviceEnablePeerAccess(0, 0));
    NEED(aclrtMemcpy(block, 12, memory, 12, ACL_MEMCPY_DEVICE_TO_DEVICE));
    return failed;
}
