/* says: aclrtDestroyStream: it was called after aclrtResetDevice; it must be called before.
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    NEED(aclrtResetDevice(0));
    return aclrtDestroyStream(stream) != 0;
}
