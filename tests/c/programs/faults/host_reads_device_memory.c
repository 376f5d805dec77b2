/* says: the host read device memory at 0x*, byte 4 of a block of 20 bytes at 0x*; only aclrtMemcpy may cross to the host (the last call of this thread was aclrtMemcpy).
   warn: dies */
#include "../setup.h"
int main(void) {
    begin();
    const volatile float *memory = numbers(5);
    return memory[1] != 2;
}
