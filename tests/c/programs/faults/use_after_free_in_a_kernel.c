/* says: aclnnAdaptiveAvgPool3dBackward: gradOutput has an address that is 0x*, in a block of 24 bytes that was freed; it must lie inside one block.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    void *memory = numbers(6);
    NEED(aclrtFree(memory));
    return gradient(memory);
}
