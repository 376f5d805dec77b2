// Scratch buffers.
//
// `Carve` divides one buffer into aligned arrays. A kernel uses it twice: without a buffer to count the bytes that it
// needs, and with one to get the arrays. The integer functions are those that this arithmetic needs.

#pragma once

#include <cstdint>

namespace pooltide {
namespace {

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Divides one buffer into arrays, each aligned to 64 bytes. With a null buffer it only counts the bytes.
class Carve {
 public:
  explicit Carve(void* scratch) : memory_((uintptr_t)scratch) {}
  template <class X> X* take(int64_t n) {
    X* array = (X*)(memory_ + used_);
    used_ += round_up(n * (int64_t)sizeof(X), 64);
    return array;
  }
  int64_t used() const { return used_; }

 private:
  uintptr_t memory_;
  int64_t used_ = 0;
};

}  // namespace
}  // namespace pooltide
