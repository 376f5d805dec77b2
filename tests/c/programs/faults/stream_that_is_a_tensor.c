/* says: aclrtSynchronizeStream: stream is an aclTensor; it must be a stream of aclrtCreateStream. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    begin();
    return aclrtSynchronizeStream(volume(2, 3, 5, 7, NULL)) != 0;
}
