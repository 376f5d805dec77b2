/* says: aclrtDestroyStream: stream was destroyed; it must be a stream of aclrtCreateStream. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    NEED(aclrtDestroyStream(stream));
    return aclrtDestroyStream(stream) != 0;
}
