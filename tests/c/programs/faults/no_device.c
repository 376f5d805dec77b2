/* says: aclrtMalloc: this thread has no context; call aclrtSetDevice or aclrtSetCurrentContext first. [107002 ACL_ERROR_RT_CONTEXT_NULL]
   warn: fails */
#include "../setup.h"
int main(void) {
    void *block = NULL;
    NEED(aclInit(NULL));
    return aclrtMalloc(&block, 12, ACL_MEM_MALLOC_HUGE_FIRST) != 0;
}
