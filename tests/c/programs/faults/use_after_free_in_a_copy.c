/* says: aclrtMemcpy: src is 0x*, in a block of 20 bytes that was freed; it must lie inside one block. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    float host[5];
    begin();
    void *memory = numbers(5);
    NEED(aclrtFree(memory));
    return aclrtMemcpy(host, sizeof host, memory, 20, ACL_MEMCPY_DEVICE_TO_HOST) != 0;
}
