/* says: aclFinalize: 1 event is still live: made at *; each must be destroyed by aclrtDestroyEvent.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    aclrtEvent event;
    begin();
    NEED(aclrtCreateEvent(&event));
    NEED(aclrtDestroyStream(stream));
    return aclFinalize() != 0;
}
