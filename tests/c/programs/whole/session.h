// What programs written for CANN do around an operator, in the manner of its documents: macros that return from
// main, a template that copies a std::vector to the device and computes strides, scoped enumerators, and %ld.
#include <iostream>
#include <vector>
#include "math.h"
#include "acl/acl.h"

#define EXPECT_OK(what, call)                                \
  do {                                                       \
    auto ret = (call);                                       \
    if (ret != ACL_SUCCESS) {                                \
      printf("%s failed. ERROR: %d\n", what, ret);           \
      return 1;                                              \
    }                                                        \
  } while (0)

struct Session {
  int32_t device = 0;
  aclrtStream stream = nullptr;
  std::vector<void*> blocks;
  std::vector<aclTensor*> tensors;

  int Open() {
    EXPECT_OK("aclInit", aclInit(nullptr));
    EXPECT_OK("aclrtSetDevice", aclrtSetDevice(device));
    EXPECT_OK("aclrtCreateStream", aclrtCreateStream(&stream));
    return 0;
  }

  int Malloc(uint64_t bytes, void** block) {
    EXPECT_OK("aclrtMalloc", aclrtMalloc(block, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    blocks.push_back(*block);
    return 0;
  }

  // Copies the first elements of `host`, which may be longer than the shape, to the device.
  template <typename T>
  int Tensor(const std::vector<T>& host, const std::vector<int64_t>& shape, aclDataType type, aclFormat format,
             aclTensor** tensor) {
    std::vector<int64_t> strides(shape.size(), 1);
    for (int64_t i = (int64_t)shape.size() - 2; i >= 0; i--) strides[i] = strides[i + 1] * shape[i + 1];
    uint64_t bytes = strides[0] * shape[0] * sizeof(T);
    void* block = nullptr;
    if (Malloc(bytes, &block)) return 1;
    EXPECT_OK("aclrtMemcpy", aclrtMemcpy(block, bytes, host.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    *tensor = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, format, shape.data(), shape.size(), block);
    tensors.push_back(*tensor);
    return *tensor == nullptr;
  }

  // Waits for the stream, and prints the floats of the block that was allocated as number `at`.
  int Print(size_t at, int64_t count) {
    EXPECT_OK("aclrtSynchronizeStream", aclrtSynchronizeStream(stream));
    std::vector<float> result(count, 0);
    uint64_t bytes = count * sizeof(result[0]);
    EXPECT_OK("copy to the host", aclrtMemcpy(result.data(), bytes, blocks[at], bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int64_t i = 0; i < count; i++) printf("result[%ld] is: %f\n", i, result[i]);
    return 0;
  }

  int Close() {
    for (auto tensor : tensors) aclDestroyTensor(tensor);
    for (auto block : blocks) aclrtFree(block);
    aclrtDestroyStream(stream);
    aclrtResetDevice(device);
    aclFinalize();
    return 0;
  }
};
