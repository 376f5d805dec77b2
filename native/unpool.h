// Max unpooling and its gradient.
//
// Unpooling copies each pooled element to the cell that its index names, and sets the other cells to 0. The gradient
// copies from that cell instead. Input: Unpool::source and Unpool::indices. Output: Unpool::out, and the Fault.
// Elements are copied as bits, so every type of 1, 2, 4 or 8 bytes is possible.

#pragma once

#include "problem.h"
#include "threads/interruption.h"

namespace pooltide {

struct Unpool {
  int64_t planes, windows, cells;  // elements per plane: of the pooled side, and of the unpooled side
  int64_t channels;                // of channels-last arrays; 1: every plane is contiguous
  int itemsize, index_bytes;       // 1, 2, 4 or 8; 4 or 8
  bool gather;                     // false: out[index] = source; true, the gradient: out = source[index]
  const void *source, *indices;
  void* out;
};

// Of equal indices in a plane the last one wins. An index outside the plane is reported; it writes nothing, or
// reads 0. After an interruption the contents of `out` are unspecified.
Fault run_unpool(const Unpool& facts, int threads, Interruption* interruption = nullptr);
bool takes_long(const Unpool& facts);

}  // namespace pooltide
