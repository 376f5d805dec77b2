/* says: aclFinalize: 1 block of registered memory, 24 bytes, is still allocated: 0x* (24 bytes, taken at *); each must be freed by aclrtHostUnregister.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    void *host = NULL, *mapped = NULL;
    begin();
    NEED(aclrtMallocHost(&host, 24));
    NEED(aclrtHostRegister(host, 24, ACL_HOST_REGISTER_MAPPED, &mapped));
    NEED(aclrtDestroyStream(stream));
    return aclFinalize() != 0;
}
