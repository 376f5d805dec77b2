// C++ classes that own what the runtime gives out, so that nothing leaks when an exception passes.
#include <memory>
#include <stdexcept>
#include <string>

#include "aclnnop/aclnn_adaptive_max_pool2d_backward.h"
#include "threads.h"

static void check(int status, const char *what) {
    if (status == 0) return;
    const char *message = aclGetRecentErrMsg();
    throw std::runtime_error(std::string(what) + ": " + (message ? message : "no message"));
}

class Stream {
    aclrtStream handle_ = nullptr;

  public:
    Stream() { check(aclrtCreateStream(&handle_), "aclrtCreateStream"); }
    ~Stream() { aclrtDestroyStream(handle_); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    void wait() const { check(aclrtSynchronizeStream(handle_), "aclrtSynchronizeStream"); }
    aclrtStream get() const { return handle_; }
};

class Memory {
    void *address_ = nullptr;

  public:
    explicit Memory(size_t size) { check(aclrtMalloc(&address_, size, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc"); }
    ~Memory() { aclrtFree(address_); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    void *get() const { return address_; }
};

template <typename T> struct TypeOf;
template <> struct TypeOf<float> { static const aclDataType code = ACL_FLOAT; };
template <> struct TypeOf<int64_t> { static const aclDataType code = ACL_INT64; };

template <typename T> class Tensor {
    std::vector<int64_t> shape_;
    size_t bytes_;
    Memory memory_;
    std::unique_ptr<aclTensor, aclnnStatus (*)(const aclTensor *)> handle_;

    static size_t bytes(const std::vector<int64_t> &shape) {
        size_t size = sizeof(T);
        for (int64_t n : shape) size *= static_cast<size_t>(n);
        return size;
    }

  public:
    explicit Tensor(const std::vector<int64_t> &shape)
        : shape_(shape), bytes_(bytes(shape)), memory_(bytes_),
          handle_(aclCreateTensor(shape_.data(), shape_.size(), TypeOf<T>::code, nullptr, 0, ACL_FORMAT_ND, shape_.data(),
                                  shape_.size(), memory_.get()),
                  aclDestroyTensor) {
        check(handle_ == nullptr, "aclCreateTensor");
    }
    void set(const std::vector<T> &values) {
        check(aclrtMemcpy(memory_.get(), bytes_, values.data(), values.size() * sizeof(T), ACL_MEMCPY_HOST_TO_DEVICE), "copy");
    }
    std::vector<T> values() const {
        std::vector<T> result(bytes_ / sizeof(T));
        check(aclrtMemcpy(result.data(), bytes_, memory_.get(), bytes_, ACL_MEMCPY_DEVICE_TO_HOST), "copy");
        return result;
    }
    aclTensor *get() const { return handle_.get(); }
};

static void scatter(Tensor<float> &grad, Tensor<float> &self, Tensor<int64_t> &indices, Tensor<float> &out, const Stream &stream) {
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    check(aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(grad.get(), self.get(), indices.get(), out.get(), &size, &executor), "plan");
    std::unique_ptr<Memory> workspace(size > 0 ? new Memory(size) : nullptr);
    check(aclnnAdaptiveMaxPool2dBackward(workspace ? workspace->get() : nullptr, size, executor, stream.get()), "run");
    stream.wait();
}

static int work(int thread) {
    int wrong = 1;
    try {
        Stream stream;
        Tensor<float> grad({2, 1, 3}), self({2, 2, 5}), out({2, 2, 5});
        Tensor<int64_t> indices({2, 1, 3});
        const float t = static_cast<float>(thread);
        grad.set({1 + t, 2, 3, 4, 5, 6 + t});
        indices.set({0, 8, 8, 5, 1, 9});
        scatter(grad, self, indices, out, stream);
        const std::vector<float> want = {1 + t, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 6 + t};
        wrong = out.values() != want;
        Tensor<float> too_small({2, 2, 4});
        scatter(grad, self, indices, too_small, stream);
        wrong++;  // not reached: gradInput must have the shape of self
    } catch (const std::runtime_error &error) {
        wrong += std::string(error.what()).find("gradInput has shape (2, 2, 4)") == std::string::npos;
    }
    return wrong;
}
