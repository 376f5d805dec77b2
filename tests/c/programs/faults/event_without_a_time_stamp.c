/* says: aclrtEventElapsedTime: endEvent has no flag ACL_EVENT_TIME_LINE; it must have it for a time stamp. [107006 ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    aclrtEvent timed, other;
    float ms = 0;
    begin();
    NEED(aclrtCreateEvent(&timed));
    NEED(aclrtCreateEventWithFlag(&other, ACL_EVENT_SYNC));
    NEED(aclrtRecordEvent(timed, stream));
    NEED(aclrtRecordEvent(other, stream));
    NEED(aclrtSynchronizeStream(stream));
    return aclrtEventElapsedTime(&ms, timed, other) != 0;
}
