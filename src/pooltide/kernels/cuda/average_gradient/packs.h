// PACK neighbouring channels that a thread takes together: as elements of a tensor, and as sums.
#pragma once

#include "gradient_quotients.h"

struct __align__(PACK * sizeof(Element)) Elements {
  Element each[PACK];
};
struct __align__(PACK * sizeof(Sum)) Sums {
  Sum each[PACK];
};

__device__ __forceinline__ Sums zeros() {
  Sums made;
#pragma unroll
  for (int i = 0; i < PACK; ++i) made.each[i] = 0;
  return made;
}

__device__ __forceinline__ void add(Sums &to, const Sums &from) {
#pragma unroll
  for (int i = 0; i < PACK; ++i) to.each[i] += from.each[i];
}

__device__ __forceinline__ Sums divided(const Elements &g, const Divisors &by) {
  Sums made;
#pragma unroll
  for (int i = 0; i < PACK; ++i) made.each[i] = divided(widen(g.each[i]), by);
  return made;
}

__device__ __forceinline__ Elements narrowed(const Sums &sums) {
  Elements made;
  narrow_all<PACK>(made.each, sums.each);
  return made;
}

#define VECTOR (16 / (int)sizeof(Elements))  // packs of 16 bytes

// How many packs lie between the last multiple of 16 bytes and this address.
__device__ __forceinline__ int skipped(const Elements *to) { return (int)((u64)to / sizeof(Elements) % VECTOR); }

// All threads of a block write `size` packs to `to`, by whole vectors where they can. `from` is in shared memory, as far
// after a multiple of 16 bytes as `to` is.
__device__ __forceinline__ void write_run(Elements *to, const Elements *from, int size) {
  const int skip = skipped(to);
  to -= skip, from -= skip;
  for (int i = threadIdx.x * VECTOR; i < skip + size; i += blockDim.x * VECTOR) {
    if (i >= skip && i + VECTOR <= skip + size)
      *(uint4 *)(to + i) = *(const uint4 *)(from + i);
    else
      for (int j = max(i, skip); j < min(i + VECTOR, skip + size); ++j) to[j] = from[j];
  }
}
