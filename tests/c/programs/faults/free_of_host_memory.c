/* says: aclrtFree: devPtr is 0x*, in no block that aclrtMalloc gave out; it must be the start of a block that aclrtMalloc gave out. [107000 ACL_ERROR_RT_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    int here = 0;
    begin();
    return aclrtFree(&here) != 0;
}
