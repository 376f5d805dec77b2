/* Calls aclnnMany, an operator of a user's page, with an argument of every type. "late" forgets the wait,
 * "big" breaks the page's own rule. */
#include <string.h>

#include "aclnnop/aclnn_many.h"
#include "setup.h"

/* A tensor of three floats, of rank 1 or 2. */
static aclTensor *row(uint64_t rank, void *data) {
    const int64_t dims[] = {1, 3}, *shape = dims + 2 - rank;
    aclTensor *made = aclCreateTensor(shape, rank, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, rank, data);
    need(made != NULL, "aclCreateTensor");
    return made;
}

int main(int argc, char **argv) {
    const int64_t dims[] = {1, 2};
    const float scales[] = {0.5f};
    const bool flags[] = {true, false};
    const int late = argc > 1 && strcmp(argv[1], "late") == 0, big = argc > 1 && strcmp(argv[1], "big") == 0;
    float two = 2, host[3];
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    begin();
    void *blocks[] = {numbers(3), numbers(3), numbers(3), device(12)};
    const aclTensor *members[] = {row(2, blocks[0]), row(2, blocks[1])};
    aclTensorList *others = aclCreateTensorList(members, 2);
    aclTensor *self = row(2, blocks[2]), *sums = row(1, blocks[3]);
    aclScalar *alpha = aclCreateScalar(&two, ACL_FLOAT);
    aclIntArray *ints = aclCreateIntArray(dims, 2);
    aclFloatArray *floats = aclCreateFloatArray(scales, 1);
    aclBoolArray *bools = aclCreateBoolArray(flags, 2);
    int status = aclnnManyGetWorkspaceSize(self, others, NULL, alpha, ints, floats, bools, big ? 10 : 4, -1, true, 0.25,
                                           0.5f, "sum", sums, &size, &executor);
    if (status == 0) {
        void *workspace = device(size);
        NEED(aclnnMany(workspace, size, executor, stream));
        if (!late && (status = aclrtSynchronizeStream(stream))) return 1;
        NEED(aclrtMemcpy(host, 12, blocks[3], 12, ACL_MEMCPY_DEVICE_TO_HOST));
        if (status == 0) printf("%g %g %g\n", host[0], host[1], host[2]);
        NEED(aclrtSynchronizeStream(stream));
        NEED(aclrtFree(workspace));
    }
    aclDestroyTensorList(others);
    aclDestroyTensor(self);
    aclDestroyTensor(sums);
    aclDestroyScalar(alpha);
    aclDestroyIntArray(ints);
    aclDestroyFloatArray(floats);
    aclDestroyBoolArray(bools);
    for (int i = 0; i < 4; i++) NEED(aclrtFree(blocks[i]));
    NEED(aclrtDestroyStream(stream));
    NEED(aclFinalize());
    return status != 0;
}
