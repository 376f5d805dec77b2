// What the gradients of maxima share: one-byte offsets, the first cell of a row of windows, and gradients in the
// type of their sums.

#pragma once

#include "../problem.h"
#include "../simd/lanes.h"
#include "../simd/scratch.h"

namespace pooltide {
namespace {

// Returns the index of cell (d, h, 0) of the plane, where d and h are the first cells of the windows of this row.
inline int64_t row_start(const Problem& p, int64_t row) {
  int64_t d = p.d.start[row / p.h.windows], h = p.h.start[row % p.h.windows];
  return (d * p.h.cells + h) * p.w.cells;
}

// Writes the cells that the one-byte offsets of some windows name, from window q of an image on. If q passes the
// last window, the next image follows.
inline void decode_offsets(const Problem& p, const uint8_t* offset, int64_t q, int64_t windows, int64_t channels, int64_t* cell) {
  for (int64_t end = q + windows, next; q < end; q = next) {
    int64_t ow = q % p.w.windows, corner = row_start(p, q / p.w.windows % (p.d.windows * p.h.windows));
    next = smaller(end, q + p.w.windows - ow);
    for (const int32_t *start = p.w.start + ow, *last = start + next - q; start < last; start++)
      for (int64_t c = 0; c < channels; c++) *cell++ = corner + *start + p.jump[*offset++];
  }
}

// Calls `use` with a null value of the storage type of a problem. Kernels for half types are compiled once, with S = Half, and
// call this where they convert.
template <class S, class F> POOLTIDE_INLINE auto with_storage(const Problem& p, F use) {
  if constexpr (sizeof(S) == 2)
    if (p.store == Store::bf16) return use(Bfloat{});
  return use(S{});
}

// Returns n gradients in the type of the sums. Half types are converted into `to`, and the elements `ahead` of
// them are prefetched.
template <class S, class T> inline const T* widened(const S* grad, int64_t n, T* to, int64_t ahead) {
  if constexpr (sizeof(S) == sizeof(T)) {
    return (const T*)grad;
  } else {
    int64_t i = 0;
    for (; i + lanes<S> <= n; i += lanes<S>) {
      __builtin_prefetch(grad + i + ahead);
      store(to + i, load(grad + i));
    }
    if (i < n) store(to + i, load_part(grad + i, n - i));
    return to;
  }
}

}  // namespace
}  // namespace pooltide
