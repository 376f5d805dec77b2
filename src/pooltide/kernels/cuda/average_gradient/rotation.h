// A walk over rows that keeps the last ROWS of them in registers.
#pragma once

// For each row o from `o` to last - 1: enter(slot, o) reads the row into a slot, then leave(u) uses all ROWS slots;
// slot u has the oldest row. Before the first of these rows, the ROWS - 1 rows above it are entered. Slot numbers are
// constants after unrolling, so the slots stay in registers.
template <int ROWS, class Enter, class Leave>
__device__ __forceinline__ void rotate(int o, int last, const Enter &enter, const Leave &leave) {
#pragma unroll
  for (int j = 0; j < ROWS - 1; ++j) enter(j, o - ROWS + 1 + j);
  for (; o + ROWS <= last; o += ROWS) {
#pragma unroll
    for (int u = 0; u < ROWS; ++u) {
      enter((u + ROWS - 1) % ROWS, o + u);
      leave(u);
    }
  }
#pragma unroll
  for (int u = 0; u < ROWS - 1; ++u) {
    if (o + u < last) {
      enter((u + ROWS - 1) % ROWS, o + u);
      leave(u);
    }
  }
}
