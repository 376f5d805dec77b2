/* says: aclFinalize: 1 aclTensor is still live: <aclTensor FLOAT32 (2, 3, 5, 7) ND at null>, made at *; each must be destroyed by aclDestroyTensor.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    volume(2, 3, 5, 7, NULL);
    NEED(aclrtDestroyStream(stream));
    return aclFinalize() != 0;
}
