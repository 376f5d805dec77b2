// Small arithmetic, and scratch memory cut into arrays.

#pragma once

#include <cstdint>

namespace pooltide {
namespace {

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Cuts one block of memory into aligned arrays. With a null block it only counts the bytes.
class Carve {
 public:
  explicit Carve(void* block) : block_((uintptr_t)block) {}
  template <class X> X* take(int64_t n) {
    X* found = (X*)(block_ + used_);
    used_ += round_up(n * (int64_t)sizeof(X), 64);
    return found;
  }
  int64_t used() const { return used_; }

 private:
  uintptr_t block_;
  int64_t used_ = 0;
};

}  // namespace
}  // namespace pooltide
