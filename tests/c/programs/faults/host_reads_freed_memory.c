/* says: the host read device memory at 0x*, in no block that is allocated; only aclrtMemcpy may cross to the host (the last call of this thread was aclrtFree).
   warn: dies */
#include "../setup.h"
int main(void) {
    begin();
    void *memory = numbers(5);
    NEED(aclrtFree(memory));
    return *(volatile float *)memory != 1;
}
