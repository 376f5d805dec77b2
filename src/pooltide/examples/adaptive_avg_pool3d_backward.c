/* Gradient of 3-D adaptive average pooling, in C: (2,1,2,3) back to (2,2,5,7). */
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"
#include "steps.h"

enum { SMALL = 2 * 1 * 2 * 3, LARGE = 2 * 2 * 5 * 7 };

int main(void) {
    const int64_t small[] = {2, 1, 2, 3}, large[] = {2, 2, 5, 7};
    float grad[SMALL], result[LARGE];
    for (int i = 0; i < SMALL; i++) grad[i] = (float)(i * i);

    aclrtStream stream = start();
    void *grad_block = upload(grad, sizeof grad), *out_block = allocate(sizeof result);
    aclTensor *grad_output = describe(small, 4, ACL_FLOAT, ACL_FORMAT_ND, grad_block);
    aclTensor *self = describe(large, 4, ACL_FLOAT, ACL_FORMAT_ND, NULL); /* only its shape matters */
    aclTensor *out = describe(large, 4, ACL_FLOAT, ACL_FORMAT_ND, out_block);

    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    MUST(aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad_output, self, out, &size, &executor));
    void *workspace = allocate(size);
    MUST(aclnnAdaptiveAvgPool3dBackward(workspace, size, executor, stream));
    MUST(aclrtSynchronizeStream(stream));

    download(result, out_block, sizeof result);
    print(result, LARGE / 7, 7);

    release((aclTensor *[]){grad_output, self, out, NULL}, (void *[]){grad_block, out_block, workspace, NULL});
    finish(stream);
    return 0;
}
