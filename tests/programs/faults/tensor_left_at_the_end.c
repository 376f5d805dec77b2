/* says: aclFinalize: 1 aclTensor is still there: <aclTensor FLOAT32 (2, 3, 5, 7) ND at null>; each must end by aclDestroyTensor.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    volume(2, 3, 5, 7, NULL);
    NEED(aclrtDestroyStream(stream));
    return aclFinalize() != 0;
}
