/* says: aclrtStreamWaitEvent: event was never recorded; call aclrtRecordEvent first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    aclrtEvent event;
    begin();
    NEED(aclrtCreateEvent(&event));
    return aclrtStreamWaitEvent(stream, event) != 0;
}
