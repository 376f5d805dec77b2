/* says: aclrtMemcpy: dst is 0x*, device memory, and kind is ACL_MEMCPY_DEVICE_TO_HOST; kind must be ACL_MEMCPY_HOST_TO_DEVICE, or dst must be host memory. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    const float host[] = {2, 3, 5};
    begin();
    return aclrtMemcpy(device(12), 12, host, 12, ACL_MEMCPY_DEVICE_TO_HOST) != 0;
}
