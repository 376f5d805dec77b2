/* says: aclrtFree: devPtr is 0x*, in a block of 12 bytes that was freed; it must be the start of a block that aclrtMalloc gave out. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    void *memory = numbers(3);
    NEED(aclrtFree(memory));
    return aclrtFree(memory) != 0;
}
