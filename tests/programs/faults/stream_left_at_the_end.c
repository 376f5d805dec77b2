/* says: aclFinalize: 1 stream is still there; each must end by aclrtDestroyStream.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    return aclFinalize() != 0;
}
