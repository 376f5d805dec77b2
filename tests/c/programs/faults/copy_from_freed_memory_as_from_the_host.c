/* says: aclrtMemcpy: src is 0x*, in a block of 12 bytes that was freed; it must be host memory in this direction of copy. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    void *memory = numbers(3);
    NEED(aclrtFree(memory));
    return aclrtMemcpy(device(12), 12, memory, 12, ACL_MEMCPY_HOST_TO_DEVICE) != 0;
}
