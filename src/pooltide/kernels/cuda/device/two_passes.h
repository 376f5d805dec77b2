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

#define MANY_PARTS 256  // counts of a unit that all warps of a block add up together

// The second pass as a launch: finds the units that lack gradients, and computes them again. With few counts, every
// warp looks at other units; all warps compute what one of them found.
template <class Expected, class Compute>
__device__ __forceinline__ void compute_again(const Parameters &p, i64 units, int together, int pieces, int *total,
                                              Expected expected, Compute compute) {
  const bool many = p.parts > MANY_PARTS;
  const int warp = many ? 0 : threadIdx.x / 32, lane = many ? threadIdx.x : threadIdx.x % 32;
  const int lanes = many ? blockDim.x : 32, groups = many ? 1 : blockDim.x / 32;  // groups of units
  for (i64 base = (i64)blockIdx.x * groups; base * together < units; base += (i64)gridDim.x * groups) {
    const i64 first = (base + warp) * together, end = min(first + together, units);
    int missing = 0;
    for (i64 unit = first + lane; unit < end; unit += lanes) missing += expected(unit);
    if (first < units) {
      const int *counts = p.counts + (base + warp) * p.parts;
#pragma unroll 8
      for (int i = lane; i < p.parts; i += lanes) missing -= counts[i];
    }
    missing = sum_of_warp(missing);
    __syncthreads();  // all warps have read what they found before
    if (threadIdx.x == 0) *total = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0 && missing) many ? atomicAdd(total, missing) : atomicAdd(total, 1 << warp);
    __syncthreads();
    const int found = *total;  // the gradients that are missing, or a bit for each group
    for (int i = 0; i < groups; ++i) {
      if (many ? found == 0 : !(found >> i & 1)) continue;
      const i64 from = (base + i) * together, to = min(from + together, units);
      for (i64 unit = from; unit < to; ++unit) compute(unit, 0, pieces, true);
    }
  }
}

// compute(unit, from, to, everything) computes the pieces from…to - 1 of a unit, and returns how many gradients the
// thread added. `everything` true: it reads all windows of the unit. expected(unit) returns how many gradients the
// unit has. `total` points to an int in shared memory, in which the block adds its counts.
template <class Expected, class Compute>
__device__ __forceinline__ void in_two_passes(const Parameters &p, i64 units, int together, int pieces, int *total,
                                              Expected expected, Compute compute) {
  if (p.redo) {
    wait_for_launch_before();
    compute_again(p, units, together, pieces, total, expected, compute);
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
