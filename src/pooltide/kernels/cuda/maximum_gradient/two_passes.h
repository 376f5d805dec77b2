// The two passes of a scatter. A unit is a plane, or some channels of an image; one block or several compute it.
//
// In the first pass a block reads only the windows around its cells. It counts the gradients that it added.
// If the blocks of a unit together added fewer gradients than `expected`, some index names a cell outside its window.
// Then the second pass computes the whole unit again, and reads all windows of the unit for each of its pieces.
// If a unit has one part, the block runs the second pass at once. If a unit has several parts, the second pass is a
// second launch with `redo` set, which reads the counts of the first launch. Each `together` units share their counts.
// The first launch may run another kernel that writes such counts. The second launch may start before the first one
// has ended, so that its start costs no time; it then waits for the end of the first.
#pragma once

#include "warps.h"

// compute(unit, from, to, everything) computes the pieces from…to - 1 of a unit, and returns how many gradients the
// thread added. `everything` true: it reads all windows of the unit. expected(unit) returns how many gradients the
// unit has. `total` points to an int in shared memory, in which the block adds its counts.
template <class Expected, class Compute>
__device__ __forceinline__ void in_two_passes(const Parameters &p, i64 units, int together, int pieces, int *total,
                                              Expected expected, Compute compute) {
  if (p.redo) {
    wait_for_launch_before();
    for (i64 first = (i64)blockIdx.x * together; first < units; first += (i64)gridDim.x * together) {
      const i64 end = min(first + together, units), counts = first / together * p.parts;
      int missing = 0;
      for (i64 unit = first + threadIdx.x % 32; unit < end; unit += 32) missing += expected(unit);
      for (int i = threadIdx.x % 32; i < p.parts; i += 32) missing -= p.counts[counts + i];
      if (sum_of_warp(missing) == 0) continue;
      for (i64 unit = first; unit < end; ++unit) compute(unit, 0, pieces, true);
    }
    return;
  }
  let_next_launch_start();
  const i64 unit = blockIdx.x / p.parts;
  const int part = blockIdx.x % p.parts;
  const int from = (int)((i64)pieces * part / p.parts), to = (int)((i64)pieces * (part + 1) / p.parts);
  if (threadIdx.x == 0) *total = 0;
  __syncthreads();
  const int added = compute(unit, from, to, false);
  if (added) atomicAdd(total, added);
  __syncthreads();
  if (p.parts > 1) {
    if (threadIdx.x == 0) p.counts[blockIdx.x] = *total;
  } else if (*total != expected(unit)) {
    compute(unit, from, to, true);
  }
}
