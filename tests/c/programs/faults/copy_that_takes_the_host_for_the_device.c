/* says: aclrtMemcpy: src is 0x*, in no block that aclrtMalloc gave out, and kind is ACL_MEMCPY_DEVICE_TO_DEVICE; kind must be ACL_MEMCPY_HOST_TO_DEVICE, or src must be device memory. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    const float host[] = {2, 3, 5};
    begin();
    return aclrtMemcpy(device(12), 12, host, 12, ACL_MEMCPY_DEVICE_TO_DEVICE) != 0;
}
