/* says: aclrtSetDevice: it was called before aclInit, so the runtime starts now; call aclInit first. At *main*
   warn: is told */
#include "../setup.h"
int main(void) {
    NEED(aclrtSetDevice(0));
    NEED(aclrtFree(numbers(3)));
    return aclrtResetDevice(0);
}
