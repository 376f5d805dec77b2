// Two steps of training with aclnn calls alone: convolution, relu, max pool, average pool, matrix product and
// softmax, their gradients, and new weights. The operators around the pools are those of operators/:
//
//     pooltide cc --operators operators training_step.cpp -o training_step
#include <functional>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_avgpool2d.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"
#include "aclnnop/aclnn_convolution.h"
#include "aclnnop/aclnn_copy.h"
#include "aclnnop/aclnn_matmul.h"
#include "aclnnop/aclnn_max_pool2d_with_indices.h"
#include "aclnnop/aclnn_max_pool2d_with_indices_backward.h"
#include "aclnnop/aclnn_mul.h"
#include "aclnnop/aclnn_permute.h"
#include "aclnnop/aclnn_relu.h"
#include "aclnnop/aclnn_softmax.h"
#include "aclnnop/aclnn_threshold_backward.h"
#include "steps.h"

using Shape = std::vector<int64_t>;

// A tensor with its own memory, or with that of another tensor, seen in another shape.
struct Tensor {
    size_t count;
    void *block;
    bool owner = true;
    aclTensor *handle;

    static size_t cells(const Shape &shape) {
        return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies<size_t>());
    }
    explicit Tensor(const Shape &shape, aclDataType type = ACL_FLOAT)
        : count(cells(shape)), block(allocate(count * 4)), handle(make(shape, type)) {}
    Tensor(const Shape &shape, const std::vector<float> &values)
        : count(cells(shape)), block(upload(values.data(), count * 4)), handle(make(shape, ACL_FLOAT)) {}
    Tensor(const Tensor &other, const Shape &shape)
        : count(other.count), block(other.block), owner(false), handle(make(shape, ACL_FLOAT)) {}
    ~Tensor() {
        aclDestroyTensor(handle);
        if (owner) aclrtFree(block);
    }
    Tensor(const Tensor &) = delete;
    operator aclTensor *() const { return handle; }

  private:
    aclTensor *make(const Shape &shape, aclDataType type) const {
        return describe(shape.data(), shape.size(), type, shape.size() == 4 ? ACL_FORMAT_NCHW : ACL_FORMAT_ND, block);
    }
};

struct Ints {
    aclIntArray *handle;
    Ints(std::initializer_list<int64_t> values) : handle(aclCreateIntArray(values.begin(), values.size())) {}
    ~Ints() { aclDestroyIntArray(handle); }
    Ints(const Ints &) = delete;
    operator aclIntArray *() const { return handle; }
};

struct Scalar {
    aclScalar *handle;
    explicit Scalar(float value) : handle(aclCreateScalar(&value, ACL_FLOAT)) {}
    ~Scalar() { aclDestroyScalar(handle); }
    Scalar(const Scalar &) = delete;
    operator aclScalar *() const { return handle; }
};

static aclrtStream stream;
static std::vector<void *> workspaces;  // which live until the stream is done

// Both phases of an operator.
#define RUN(operator_, ...)                                                    \
    do {                                                                       \
        uint64_t size = 0;                                                     \
        aclOpExecutor *executor = nullptr;                                     \
        MUST(operator_##GetWorkspaceSize(__VA_ARGS__, &size, &executor));      \
        workspaces.push_back(allocate(size));                                  \
        MUST(operator_(workspaces.back(), size, executor, stream));            \
    } while (0)

// Small numbers that differ from each other: (i * step mod 23 - 11) / 32.
static std::vector<float> values(size_t count, size_t step) {
    std::vector<float> result(count);
    for (size_t i = 0; i < count; i++) result[i] = static_cast<float>(static_cast<int>(i * step % 23) - 11) / 32;
    return result;
}

static void train(int steps) {
    const Ints one{1}, two{2}, zero{0};
    const Scalar nothing(0), minus(-1), rate(-0.5f);
    const Tensor x({2, 3, 9, 11}, values(594, 7)), half({1}, std::vector<float>{0.5f});
    const Tensor target({2, 4}, std::vector<float>{0, 1, 0, 0, 0, 0, 0, 1});
    const Tensor filters({5, 3, 3, 3}, values(135, 5)), matrix({60, 4}, values(240, 9));
    const Tensor convolved({2, 5, 9, 11}), positive({2, 5, 9, 11}), maxima({2, 5, 4, 5}), averages({2, 5, 3, 4});
    const Tensor indices({2, 5, 4, 5}, ACL_INT32), logits({2, 4}), chances({2, 4}), errors({2, 4}), grad({2, 4});
    const Tensor features(averages, {2, 60}), columns({60, 2}), matrix_columns({4, 60}), grad_features({2, 60});
    const Tensor grad_averages(grad_features, {2, 5, 3, 4}), grad_maxima({2, 5, 4, 5}), grad_positive({2, 5, 9, 11});
    const Tensor grad_convolved({2, 5, 9, 11}), x_channels({3, 2, 9, 11}), grad_channels({5, 2, 9, 11});
    const Tensor grad_turned({3, 5, 3, 3}), grad_filters({5, 3, 3, 3}), grad_matrix({60, 4});
    const Tensor new_filters({5, 3, 3, 3}), new_matrix({60, 4});
    const Ints swap{1, 0}, channels_first{1, 0, 2, 3};
    for (int step = 0; step < steps; step++) {
        // Forward.
        RUN(aclnnConvolution, x, filters, nullptr, one, one, one, false, zero, 1, convolved, 0);
        RUN(aclnnRelu, convolved, positive);
        RUN(aclnnMaxPool2dWithIndices, positive, two, two, zero, one, false, maxima, indices);
        RUN(aclnnAvgPool2d, maxima, two, one, zero, false, true, 0, 0, averages);
        RUN(aclnnMatmul, features, matrix, logits, 0);
        RUN(aclnnSoftmax, logits, 1, chances);
        // The gradient of the mean cross entropy: (chances - target) / 2.
        RUN(aclnnAdd, chances, target, minus, errors);
        RUN(aclnnMul, errors, half, grad);
        // Backward.
        RUN(aclnnPermute, features, swap, columns);
        RUN(aclnnMatmul, columns, grad, grad_matrix, 0);
        RUN(aclnnPermute, matrix, swap, matrix_columns);
        RUN(aclnnMatmul, grad, matrix_columns, grad_features, 0);
        RUN(aclnnAvgPool2dBackward, grad_averages, maxima, two, one, zero, false, true, 0, 0, grad_maxima);
        RUN(aclnnMaxPool2dWithIndicesBackward, grad_maxima, positive, indices, two, two, zero, one, false,
            grad_positive);
        RUN(aclnnThresholdBackward, grad_positive, convolved, nothing, grad_convolved);
        // The gradient of the filters is a convolution too, of x with the gradient, over the images.
        RUN(aclnnPermute, x, channels_first, x_channels);
        RUN(aclnnPermute, grad_convolved, channels_first, grad_channels);
        RUN(aclnnConvolution, x_channels, grad_channels, nullptr, one, one, one, false, zero, 1, grad_turned, 0);
        RUN(aclnnPermute, grad_turned, channels_first, grad_filters);
        // New weights.
        RUN(aclnnAdd, filters, grad_filters, rate, new_filters);
        RUN(aclnnInplaceCopy, filters, new_filters);
        RUN(aclnnAdd, matrix, grad_matrix, rate, new_matrix);
        RUN(aclnnInplaceCopy, matrix, new_matrix);
    }
    MUST(aclrtSynchronizeStream(stream));
    std::vector<float> weights(135 + 240);
    download(weights.data(), filters.block, 135 * 4);
    download(weights.data() + 135, matrix.block, 240 * 4);
    for (float weight : weights) printf("%.9g\n", weight);
    for (void *workspace : workspaces)
        if (workspace != nullptr) MUST(aclrtFree(workspace));
}

int main() {
    stream = start();
    train(2);
    finish(stream);
    return 0;
}
