/* A max pool of a 4 x 4 plane. */
#include "setup.h"
#include <math.h>
#include "aclnnop/aclnn_max_pool2d_with_indices.h"

static aclTensor *image(aclDataType type, int64_t h, int64_t w, void *data) {
    const int64_t dims[] = {1, 1, h, w};
    return aclCreateTensor(dims, 4, type, NULL, 0, ACL_FORMAT_NCHW, dims, 4, data);
}

/* Pools a plane with `bad` among its cells; whether the stream fails. */
static int pool(float bad) {
    const int64_t two[] = {2, 2}, none[] = {0, 0}, one[] = {1, 1};
    const float cells[16] = {1, 2, bad, 4};
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    begin();
    void *self = device(sizeof cells);
    NEED(aclrtMemcpy(self, sizeof cells, cells, sizeof cells, ACL_MEMCPY_HOST_TO_DEVICE));
    NEED(aclnnMaxPool2dWithIndicesGetWorkspaceSize(image(ACL_FLOAT, 4, 4, self), aclCreateIntArray(two, 2),
                                                   aclCreateIntArray(two, 2), aclCreateIntArray(none, 2),
                                                   aclCreateIntArray(one, 2), false,
                                                   image(ACL_FLOAT, 2, 2, device(16)),
                                                   image(ACL_INT32, 2, 2, device(16)), &size, &executor));
    NEED(aclnnMaxPool2dWithIndices(size ? device(size) : NULL, size, executor, stream));
    return aclrtSynchronizeStream(stream) != 0;
}
