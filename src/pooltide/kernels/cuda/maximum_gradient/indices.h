// How the gradients of maxima read where a maximum is: int64 or int32 indices, flat within the plane, or
// one-byte offsets within the window. INDEX is 8, 4 or 1.
#pragma once

#include "faults.h"

// The low word of the cell that the index of window q names. `fits` becomes false if the high word is not 0.
// For offsets, `corners` has the distance of each offset from the window's first cell, then the first cells
// of the windows' rows, then of their columns.
__device__ __forceinline__ u32 low_word(Index index, u32 q, const Parameters &p, bool &fits) {
#if INDEX == 1
  const u32 row = over(q, p.by_wo);
  return (u32)p.corners[index] + p.corners[256 + row] + p.corners[256 + p.window_rows + q - row * p.by_wo.n];
#else
  if (INDEX == 8) fits = fits && (u64)index >> 32 == 0;
  return (u32)index;
#endif
}

// The cell that the index of window q names, or -1 if it is outside the plane.
__device__ __forceinline__ int cell_of(Index index, u32 q, const Parameters &p) {
  bool fits = true;
  const u32 cell = low_word(index, q, p, fits);
  return fits && cell < (u32)p.plane_cells ? (int)cell : -1;
}
