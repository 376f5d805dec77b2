// Scatters gradients of a half type into a result of zeros, if few cells get more than one gradient.
//
// Input: gradients and their cells. Output: in each cell the sum of its gradients, computed in float32 and rounded.
// `copy` stores the first gradient of a cell: the sum 0 + g has the bits of g, except that -0 becomes +0. A gradient
// collides if its cell is not zero any more: then `add` adds the gradient to a float32 sum in a hash table. `write`
// rounds and stores the sums of cells that get no more gradients. If all earlier gradients of a cell were zero, the
// cell is still zero and `copy` stores the next gradient: the sum is the same.

#pragma once

#include "../simd/lanes.h"

namespace pooltide {
namespace {

template <class S> class Collisions {
  static constexpr uint32_t kBits = 13, kSlots = 1 << kBits, kEmpty = ~0u;
  struct Entry {
    uint32_t cell;
    float sum;
  };

 public:
  static constexpr uint32_t kMost = kSlots / 2;

  void clear() {
    memset((void*)table_, 0xFF, sizeof table_);
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
    Entry* entry = find(at);
    if (entry->cell == kEmpty) {
      if (count_ == kMost) return false;
      insert(entry, {at, widen_one(out[at])});
    }
    entry->sum += widen_one(g);
    return true;
  }

  // Returns whether the table is so full that `write` should make room.
  bool crowded() const { return count_ > kMost / 2; }

  // Writes the sums of the cells before `end`, and removes them from the table.
  void write(S* out, uint64_t end) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count_; i++) {
      Entry& entry = table_[used_[i]];
      if (entry.cell < end) out[entry.cell].bits = round_one(S{}, entry.sum);
      else kept_[kept++] = entry;
      entry.cell = kEmpty;
    }
    count_ = 0;
    for (uint32_t i = 0; i < kept; i++) insert(find(kept_[i].cell), kept_[i]);
  }

 private:
  // Returns the entry of a cell, or the empty one where it belongs.
  Entry* find(uint32_t at) {
    uint32_t slot = at * 2654435769u >> (32 - kBits);
    while (table_[slot].cell != kEmpty && table_[slot].cell != at) slot = (slot + 1) % kSlots;
    return table_ + slot;
  }
  void insert(Entry* empty, Entry entry) {
    *empty = entry;
    used_[count_++] = (uint32_t)(empty - table_);
  }

  Entry table_[kSlots], kept_[kMost];
  uint32_t used_[kMost];  // the places of the entries
  uint32_t count_;
};

}  // namespace
}  // namespace pooltide
