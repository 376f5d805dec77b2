// What the lanes of a warp do together.
#pragma once

#define ALL 0xffffffffu

// The sum of a number over the lanes of a warp, in every lane.
__device__ __forceinline__ int sum_of_warp(int number) {
  for (int step = 16; step; step /= 2) number += __shfl_xor_sync(ALL, number, step);
  return number;
}
