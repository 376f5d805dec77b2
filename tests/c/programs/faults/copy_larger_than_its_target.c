/* says: aclrtMemcpy: count is 12; it must be at most destMax, 8. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    const float host[] = {2, 3, 5};
    begin();
    return aclrtMemcpy(device(12), 8, host, 12, ACL_MEMCPY_HOST_TO_DEVICE) != 0;
}
