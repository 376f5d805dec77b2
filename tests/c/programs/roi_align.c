/* RoI align of one region and its gradient, ONNX's maximum, and a region of an image that does not exist. */
#include "setup.h"
#include <math.h>
#include <string.h>
#include "aclnnop/aclnn_roi_align.h"
#include "aclnnop/aclnn_roi_align_v2.h"
#include "aclnnop/aclnn_roi_align_v2_backward.h"

static void *copied(const void *host, size_t bytes) {
    void *block = device(bytes);
    NEED(aclrtMemcpy(block, bytes, host, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    return block;
}

static aclTensor *tensor(aclDataType type, aclFormat format, const int64_t *dims, uint64_t rank, void *data) {
    aclTensor *made = aclCreateTensor(dims, rank, type, NULL, 0, format, dims, rank, data);
    need(made != NULL, "aclCreateTensor");
    return made;
}

/* Runs a phase two, and prints what it wrote. */
#define RUN(name, executor, size, block, count)                                                          \
    do {                                                                                                 \
        float host[16];                                                                                  \
        NEED(name((size) ? device(size) : NULL, size, executor, stream));                                \
        NEED(aclrtSynchronizeStream(stream));                                                            \
        NEED(aclrtMemcpy(host, (count) * 4, block, (count) * 4, ACL_MEMCPY_DEVICE_TO_HOST));             \
        printf(#name ":");                                                                               \
        for (int i = 0; i < (count); i++) printf(" %g", host[i]);                                        \
        printf("\n");                                                                                    \
    } while (0)

int main(void) {
    const int64_t image[] = {1, 1, 4, 4}, pooled[] = {1, 1, 2, 2}, row[] = {1, 5}, corners[] = {1, 4}, one[] = {1};
    const float box[] = {0, 0, 0, 4, 4}, other[] = {1, 0, 0, 4, 4}, ones[] = {1, 1, 1, 1};
    const int32_t number[] = {0};
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    begin();
    void *result = device(16), *gradient = device(64);
    aclTensor *self = tensor(ACL_FLOAT, ACL_FORMAT_NCHW, image, 4, numbers(16));
    aclTensor *boxes = tensor(ACL_FLOAT, ACL_FORMAT_ND, row, 2, copied(box, sizeof box));
    aclTensor *out = tensor(ACL_FLOAT, ACL_FORMAT_NCHW, pooled, 4, result);
    NEED(aclnnRoiAlignV2GetWorkspaceSize(self, boxes, 2, 2, 1.0f, 2, true, out, &size, &executor));
    RUN(aclnnRoiAlignV2, executor, size, result, 4);

    aclTensor *grad = tensor(ACL_FLOAT, ACL_FORMAT_NCHW, pooled, 4, copied(ones, sizeof ones));
    aclTensor *input = tensor(ACL_FLOAT, ACL_FORMAT_NCHW, image, 4, gradient);
    aclIntArray *shape = aclCreateIntArray(image, 4);
    NEED(aclnnRoiAlignV2BackwardGetWorkspaceSize(grad, boxes, shape, 2, 2, 1.0f, 2, true, input, &size, &executor));
    RUN(aclnnRoiAlignV2Backward, executor, size, gradient, 16);

    aclTensor *rois = tensor(ACL_FLOAT, ACL_FORMAT_ND, corners, 2, copied(box + 1, 16));
    aclTensor *images = tensor(ACL_INT32, ACL_FORMAT_ND, one, 1, copied(number, sizeof number));
    NEED(aclnnRoiAlignGetWorkspaceSize(self, rois, images, "max", 2, 2, 1, 1.0f, out, &size, &executor));
    RUN(aclnnRoiAlign, executor, size, result, 4);
    if (aclnnRoiAlignGetWorkspaceSize(self, rois, images, "median", 2, 2, 1, 1.0f, out, &size, &executor) != 161002)
        return 3;
    if (aclnnRoiAlignGetWorkspaceSize(self, rois, images, NULL, 2, 2, 1, 1.0f, out, &size, &executor) != 161001)
        return 4;
    if (aclnnRoiAlignV2GetWorkspaceSize(self, boxes, 2, 2, NAN, 2, true, out, &size, &executor) != 161002) return 5;

    aclTensor *wrong = tensor(ACL_FLOAT, ACL_FORMAT_ND, row, 2, copied(other, sizeof other));
    NEED(aclnnRoiAlignV2GetWorkspaceSize(self, wrong, 2, 2, 1.0f, 2, true, out, &size, &executor));
    RUN(aclnnRoiAlignV2, executor, size, result, 4);
    return 0;
}
