// What the lanes of a warp do together.
#pragma once

#define ALL 0xffffffffu

// The sum of a number over the lanes of a warp, in every lane.
__device__ __forceinline__ int sum_of_warp(int number) {
  for (int step = 16; step; step /= 2) number += __shfl_xor_sync(ALL, number, step);
  return number;
}

// Adds 32 gradients, lane by lane where they name the same cell. `local` is the cell, or -1.
__device__ __forceinline__ void add_in_order(Sum *sums, int local, Sum gradient, int lane) {
  const u32 group = __match_any_sync(ALL, local < 0 ? ~lane : local);
  const bool first = local >= 0 && (group & ((1u << lane) - 1)) == 0;
  Sum sum = first ? sums[local] + gradient : (Sum)0;
  u32 rest = first ? group & (group - 1) : 0;  // the lanes still to be added
  while (__any_sync(ALL, rest != 0)) {
    const Sum next = __shfl_sync(ALL, gradient, rest ? __ffs(rest) - 1 : lane);
    if (rest) sum += next;
    rest &= rest - 1;
  }
  if (first) sums[local] = sum;
  __syncwarp();
}
