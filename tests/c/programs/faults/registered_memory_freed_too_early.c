/* says: aclrtFreeHost: hostPtr is 0x*, and 0x* in its block is registered; call aclrtHostUnregister first.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    void *host = NULL, *mapped = NULL;
    begin();
    NEED(aclrtMallocHost(&host, 24));
    NEED(aclrtHostRegister(host, 24, ACL_HOST_REGISTER_MAPPED, &mapped));
    return aclrtFreeHost(host) != 0;
}
