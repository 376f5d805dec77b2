/* says: aclrtFree: it was called after aclrtResetDevice; it must be called before.
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    void *block = numbers(3);
    NEED(aclrtDestroyStream(stream));
    NEED(aclrtResetDevice(0));
    return aclrtFree(block) != 0;
}
