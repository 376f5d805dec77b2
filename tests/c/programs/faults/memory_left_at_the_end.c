/* says: aclFinalize: 2 blocks of device memory, 32 bytes, are still allocated: 0x* (12 bytes, taken at *), 0x* (20 bytes, taken at *); each must be freed by aclrtFree.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    numbers(3);
    numbers(5);
    NEED(aclrtDestroyStream(stream));
    return aclFinalize() != 0;
}
