/* says: aclnnAdaptiveAvgPool3dBackward: gradOutput reaches elements 0 to 5 by its viewDims, strides and offset, and its storageDims, [4], have 4; the view must lie inside the storage.
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    const int64_t dims[] = {2, 1, 1, 3}, storage[] = {4};
    void *block = device(70 * sizeof(float));
    aclTensor *grad = aclCreateTensor(dims, 4, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, storage, 1, numbers(6));
    aclTensor *out = volume(2, 1, 5, 7, block);
    int failed = aclnnAdaptiveAvgPool3dBackward(NULL, 0, plan(grad, out, out), stream) != 0;
    NEED(aclrtSynchronizeStream(stream));
    return failed;
}
