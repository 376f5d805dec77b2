/* says: aclFinalize: 1 block of host memory, 12 bytes, is still allocated: 0x* (12 bytes, taken at *); each must be freed by aclrtFreeHost.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    void *host = NULL;
    begin();
    NEED(aclrtMallocHost(&host, 12));
    NEED(aclrtDestroyStream(stream));
    return aclFinalize() != 0;
}
