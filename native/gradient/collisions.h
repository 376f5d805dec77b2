// Copies gradients of a half type into a result of zeros, and sums those that meet in one cell.
//
// The first gradient of a cell is copied: 0 + g has the bits of g, except that -0 becomes +0. A gradient whose cell
// is not zero any more collides: it is added to the cell's float32 sum in a small table, and the sums are rounded
// and written at the end. A cell that held +0 gets the next gradient, which is the same sum.

#pragma once

#include "../simd/lanes.h"

namespace pooltide {
namespace {

template <class S> class Collisions {
  static constexpr uint32_t kSlots = 4096, kMost = kSlots / 2, kEmpty = ~0u;

 public:
  void clear() {
    memset(cell_, 0xFF, sizeof cell_);
    count_ = 0;
  }

  // Copies a gradient to a cell of the result. Returns false if the cell has another one.
  static bool copy(S g, S* cell) {
    if (__builtin_expect(cell->bits != 0, 0)) return false;
    cell->bits = g.bits == 0x8000 ? 0 : g.bits;
    return true;
  }

  // Adds a gradient that collides. Returns false if the table is full.
  __attribute__((noinline)) bool add(uint32_t at, const S* out, S g) {
    uint32_t slot = at * 2654435769u >> 20;
    while (cell_[slot] != kEmpty && cell_[slot] != at) slot = (slot + 1) % kSlots;
    if (cell_[slot] == kEmpty) {
      if (count_ == kMost) return false;
      count_++;
      used_[count_ - 1] = slot, cell_[slot] = at, sum_[slot] = widen(out[at]);
    }
    sum_[slot] += widen(g);
    return true;
  }

  // Writes the sums, and clears the table.
  void write(S* out) {
    for (; count_ > 0; count_--) {
      uint32_t slot = used_[count_ - 1];
      float padded[lanes<S>] = {sum_[slot]};
      S rounded[lanes<S>];
      store(rounded, load(padded));
      out[cell_[slot]] = rounded[0];
      cell_[slot] = kEmpty;
    }
  }

 private:
  static float widen(S x) {
    S padded[lanes<S>] = {x};
    return load(padded)[0];
  }

  uint32_t cell_[kSlots], used_[kMost];
  float sum_[kSlots];
  uint32_t count_;
};

}  // namespace
}  // namespace pooltide
