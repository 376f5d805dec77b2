/* says: the host wrote to device memory at 0x*, byte 8 of a block of 20 bytes at 0x*; only aclrtMemcpy may cross to the host (the last call of this thread was aclrtMemcpy).
   warn: dies */
#include "../setup.h"
int main(void) {
    begin();
    volatile float *memory = numbers(5);
    memory[2] = 7;
    return 0;
}
