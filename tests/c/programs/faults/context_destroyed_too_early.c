/* says: aclrtDestroyContext: context has jobs on stream 2 that the program has not waited for; call aclrtSynchronizeStream first.
   warn: goes on */
#include "../setup.h"
int main(void) {
    aclrtContext context;
    begin();
    NEED(aclrtCreateContext(&context, 0));
    NEED(aclrtCreateStream(&stream));
    NEED(aclrtMemsetAsync(device(12), 12, 0, 12, stream));
    return aclrtDestroyContext(context) != 0;
}
