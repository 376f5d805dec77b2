/* says: aclrtSynchronizeStream: stream is stream 1, of another context; it must be a stream of this thread's context. [107003 ACL_ERROR_RT_STREAM_CONTEXT]
   warn: fails */
#include "../setup.h"
int main(void) {
    aclrtContext context;
    begin();
    NEED(aclrtCreateContext(&context, 0));
    return aclrtSynchronizeStream(stream) != 0;
}
