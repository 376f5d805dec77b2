/* says: the host read 0x*, a handle; handles are opaque and must only be passed to calls (the last call of this thread was aclCreateTensor).
   warn: dies */
#include "../setup.h"
int main(void) {
    begin();
    return *(volatile char *)volume(2, 3, 5, 7, NULL);
}
