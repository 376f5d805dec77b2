/* says: aclrtMemcpyAsync: src is 0x*, host memory that aclrtMallocHost did not give out; in CANN 8.0 it must be memory of aclrtMallocHost.
   warn: goes on */
#include "../setup.h"
int main(void) {
    setenv("POOLTIDE_EDITION", "8.0", 1);
    float host[] = {1, 2, 3};
    begin();
    return aclrtMemcpyAsync(device(12), 12, host, 12, ACL_MEMCPY_HOST_TO_DEVICE, stream) != 0;
}
