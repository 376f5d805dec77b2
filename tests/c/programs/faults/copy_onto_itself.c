/* says: aclrtMemcpy: src is 0x*, and shares bytes with dst; it must be other memory.
   warn: goes on */
#include "../setup.h"

int main(void) {
    begin();
    char *block = numbers(12);
    return aclrtMemcpy(block + 8, 40, block, 40, ACL_MEMCPY_DEVICE_TO_DEVICE) != 0;
}
