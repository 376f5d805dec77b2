// The two passes of a scatter whose blocks compute parts of a unit (a plane, or 32 channels of an image).
//
// In the first pass a part reads only the windows that may name its cells. Every block counts the gradients that
// it added. If a unit has fewer than `expected`, an index names a cell outside its window; then every part reads
// all windows. With one part this happens at once. With more parts it is a second launch, with `redo` set, which
// reads the first one's counts. `together` units have their counts in common.
// The first launch may be that of another kernel, which leaves such counts. The second one is let start early, so that
// its start costs no time, and waits for the first one's end.
#pragma once

#include "warps.h"

// compute(unit, from, to, everything) computes the pieces from…to - 1 of a unit, from all windows if `everything`,
// and returns how many gradients the thread added. expected(unit) is how many there are. `total` is a number in
// shared memory.
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
