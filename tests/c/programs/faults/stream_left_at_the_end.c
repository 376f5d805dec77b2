/* says: aclFinalize: 1 stream is still live: made at *; each must be destroyed by aclrtDestroyStream.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    return aclFinalize() != 0;
}
