/* says: aclrtMemcpyAsync: kind is ACL_MEMCPY_HOST_TO_HOST; dst or src must be device memory; aclrtMemcpy copies from host to host.
   warn: fails */
#include "../setup.h"
int main(void) {
    float from[3] = {1, 2, 3}, to[3];
    begin();
    return aclrtMemcpyAsync(to, 12, from, 12, ACL_MEMCPY_HOST_TO_HOST, stream) != 0;
}
