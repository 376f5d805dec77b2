/* Gradient of 3-D adaptive max pooling, in C: (2,1,2,2) back to (2,2,3,5), by indices into (2,3,5). */
#include "aclnnop/aclnn_adaptive_max_pool3d_backward.h"
#include "steps.h"

enum { SMALL = 2 * 1 * 2 * 2, LARGE = 2 * 2 * 3 * 5 };

int main(void) {
    const int64_t small[] = {2, 1, 2, 2}, large[] = {2, 2, 3, 5};
    const float grad[SMALL] = {2, 3, 5, 7, 11, 13, 17, 19};
    const int32_t index[SMALL] = {0, 7, 7, 29, 16, 3, 12, 12}; /* (d * 3 + h) * 5 + w */
    float result[LARGE];

    aclrtStream stream = start();
    void *grad_block = upload(grad, sizeof grad), *index_block = upload(index, sizeof index);
    void *out_block = allocate(sizeof result);
    aclTensor *grad_output = describe(small, 4, ACL_FLOAT, ACL_FORMAT_NCDHW, grad_block);
    aclTensor *self = describe(large, 4, ACL_FLOAT, ACL_FORMAT_NCDHW, NULL); /* only its shape matters */
    aclTensor *indices = describe(small, 4, ACL_INT32, ACL_FORMAT_NCDHW, index_block);
    aclTensor *grad_input = describe(large, 4, ACL_FLOAT, ACL_FORMAT_NCDHW, out_block);

    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    MUST(aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize(grad_output, self, indices, grad_input, &size,
                                                        &executor));
    void *workspace = allocate(size);
    MUST(aclnnAdaptiveMaxPool3dBackward(workspace, size, executor, stream));
    MUST(aclrtSynchronizeStream(stream));

    download(result, out_block, sizeof result);
    print(result, LARGE / 5, 5);

    release((aclTensor *[]){grad_output, self, indices, grad_input, NULL},
            (void *[]){grad_block, index_block, out_block, workspace, NULL});
    finish(stream);
    return 0;
}
