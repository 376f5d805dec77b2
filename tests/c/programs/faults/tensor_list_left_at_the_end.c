/* says: aclFinalize: 1 aclTensorList is still live: <aclTensorList of 1>, made at *; each must be destroyed by aclDestroyTensorList.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    const aclTensor *const tensors[] = {volume(2, 3, 5, 7, NULL)};
    need(aclCreateTensorList(tensors, 1) != NULL, "aclCreateTensorList");
    NEED(aclrtDestroyStream(stream));
    return aclFinalize() != 0;
}
