/* says: aclCreateIntArray: size is 1152921504606846977; it must be the length of value, 4096 at most. [161002 ACLNN_ERR_PARAM_INVALID]
   warn: fails */
#include "../setup.h"
int main(void) {
    const int64_t value = 3;
    begin();
    return aclCreateIntArray(&value, (1ULL << 60) + 1) == NULL;
}
