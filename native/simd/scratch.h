// Scratch buffers.
//
// `Carve` divides one buffer into aligned arrays. A kernel uses it twice: without a buffer to count the bytes that it
// needs, and with one to get the arrays. The integer functions are those that this arithmetic needs.

#pragma once

#include <cstdint>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace pooltide {
namespace {

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// With the address sanitizer, unused bytes follow each array, and a kernel that touches them is stopped.
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kGuardBytes = 128;
inline void guard(uintptr_t array, int64_t bytes, int64_t room) {
  __asan_unpoison_memory_region((void*)array, bytes);
  __asan_poison_memory_region((void*)(array + bytes), room - bytes);
}
#else
constexpr int64_t kGuardBytes = 0;
inline void guard(uintptr_t, int64_t, int64_t) {}
#endif

// Divides one buffer into arrays, each aligned to 64 bytes. With a null buffer it only counts the bytes.
class Carve {
 public:
  explicit Carve(void* scratch) : memory_((uintptr_t)scratch) {}
  template <class X> X* take(int64_t n) {
    uintptr_t array = memory_ + used_;
    int64_t bytes = n * (int64_t)sizeof(X), room = round_up(bytes, 64) + kGuardBytes;
    if (memory_) guard(array, bytes, room);
    used_ += room;
    return (X*)array;
  }
  int64_t used() const { return used_; }

 private:
  uintptr_t memory_;
  int64_t used_ = 0;
};

}  // namespace
}  // namespace pooltide
