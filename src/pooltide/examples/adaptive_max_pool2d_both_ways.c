/* 2-D adaptive max pooling and its gradient, in C: (1,2,5,7) to (1,2,2,3), then back by the forward's indices. */
#include "aclnnop/aclnn_adaptive_max_pool2d.h"
#include "aclnnop/aclnn_adaptive_max_pool2d_backward.h"
#include "steps.h"

enum { LARGE = 1 * 2 * 5 * 7, SMALL = 1 * 2 * 2 * 3 };

int main(void) {
    const int64_t large[] = {1, 2, 5, 7}, small[] = {1, 2, 2, 3}, output_size[] = {2, 3};
    float input[LARGE], pooled[SMALL], gradient[LARGE];
    for (int i = 0; i < LARGE; i++) input[i] = (float)(i * 29 % 71);

    aclrtStream stream = start();
    void *input_block = upload(input, sizeof input), *pooled_block = allocate(sizeof pooled);
    void *index_block = allocate(SMALL * sizeof(int64_t)), *gradient_block = allocate(sizeof gradient);
    aclTensor *self = describe(large, 4, ACL_FLOAT, ACL_FORMAT_NCHW, input_block);
    aclTensor *out = describe(small, 4, ACL_FLOAT, ACL_FORMAT_NCHW, pooled_block);
    aclTensor *indices = describe(small, 4, ACL_INT64, ACL_FORMAT_NCHW, index_block);
    aclTensor *grad_input = describe(large, 4, ACL_FLOAT, ACL_FORMAT_NCHW, gradient_block);
    aclIntArray *size_of_output = aclCreateIntArray(output_size, 2);

    uint64_t forward_size = 0, backward_size = 0;
    aclOpExecutor *forward = NULL, *backward = NULL;
    MUST(aclnnAdaptiveMaxPool2dGetWorkspaceSize(self, size_of_output, out, indices, &forward_size, &forward));
    void *forward_workspace = allocate(forward_size);
    MUST(aclnnAdaptiveMaxPool2d(forward_workspace, forward_size, forward, stream));
    /* The maxima serve as their own gradient. One stream runs both operators in order. */
    MUST(aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(out, self, indices, grad_input, &backward_size,
                                                        &backward));
    void *backward_workspace = allocate(backward_size);
    MUST(aclnnAdaptiveMaxPool2dBackward(backward_workspace, backward_size, backward, stream));
    MUST(aclrtSynchronizeStream(stream));

    download(gradient, gradient_block, sizeof gradient);
    print(gradient, LARGE / 7, 7);

    aclDestroyIntArray(size_of_output);
    release((aclTensor *[]){self, out, indices, grad_input, NULL},
            (void *[]){input_block, pooled_block, index_block, gradient_block, NULL});
    if (forward_workspace != NULL) aclrtFree(forward_workspace);
    if (backward_workspace != NULL) aclrtFree(backward_workspace);
    finish(stream);
    return 0;
}
