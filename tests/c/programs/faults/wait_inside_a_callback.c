/* says: aclrtSynchronizeStream: stream 1 waits for a callback of aclrtLaunchCallback, which this thread calls in aclrtProcessReport; another thread must make this call, as it would never return here.*
   warn: fails */
#include <pthread.h>

#include "../setup.h"
static int status;
static void wait_here(void *nothing) { (void)nothing, status = aclrtSynchronizeStream(stream); }
int main(void) {
    begin();
    NEED(aclrtSubscribeReport((uint64_t)pthread_self(), stream));
    NEED(aclrtLaunchCallback(wait_here, NULL, ACL_CALLBACK_BLOCK, stream));
    NEED(aclrtProcessReport(-1));
    return status != 0;
}
