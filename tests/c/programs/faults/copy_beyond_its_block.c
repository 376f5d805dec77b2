/* says: aclrtMemcpy: dst is 0x*, 4 bytes into a block of 12 bytes at 0x*, and the call needs 12 bytes; it must lie inside one block. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    const float host[] = {2, 3, 5};
    begin();
    return aclrtMemcpy((char *)device(12) + 4, 12, host, 12, ACL_MEMCPY_HOST_TO_DEVICE) != 0;
}
