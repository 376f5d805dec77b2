// The gradient of averages whose one window is the whole plane: every cell is the quotient of its plane's window.
//
// The result is one run of elements, which threads write as vectors of 16 bytes, wherever a plane begins.
//
//     INNER 1: every cell of an image has the quotients of its channels. A block keeps these in shared memory, as
//              elements, followed by a copy of the first ones, so that every vector is contiguous there
//     EVEN  1: the channels fill whole vectors
//     VECTOR   elements of a vector; 1 if tensors begin anywhere
#include "gradient_quotients.h"

struct __align__(VECTOR * sizeof(Element)) Vector {
  Element each[VECTOR];
};

__device__ __forceinline__ Element cell_of_window(const Parameters &p, i64 window) {
  const Sum *by = p.divisors;
  const Divisors all = {by[0], by[1], by[2], by[3], by[4], by[5]};
  return narrow((Sum)0 + divided(widen(p.grad[window]), all));
}

#if INNER

// The vector whose first element is the quotient of channel c.
__device__ __forceinline__ Vector vector_at(const Element *kept, u32 c) {
#if EVEN
  return *(const Vector *)(kept + c);
#else
  Vector made;
#if ELEMENT >= 2 && VECTOR > 1
  const u32 *words = (const u32 *)kept + c / 2, shift = c % 2 * 16;
  u32 low = words[0];
#pragma unroll
  for (int i = 0; i < VECTOR / 2; ++i) {
    const u32 high = words[i + 1];
    ((u32 *)made.each)[i] = __funnelshift_r(low, high, shift);
    low = high;
  }
#else
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) made.each[i] = kept[c + i];
#endif
  return made;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) average_fill(const Parameters p) {
  SHARED(arena);
  Element *kept = (Element *)arena;
  const int channels = p.by_period.n;
  const i64 image = blockIdx.x / p.parts, size = (i64)p.cells * channels, start = image * size;
  const int part = (int)(blockIdx.x % p.parts);
  for (int i = threadIdx.x; i < channels + VECTOR + 1; i += blockDim.x)
    kept[i] = cell_of_window(p, image * channels + i % channels);
  __syncthreads();
  const i64 begin = start + size * part / p.parts, end = start + size * (part + 1) / p.parts;
  const i64 first = begin / VECTOR, last = (end + VECTOR - 1) / VECTOR;
#pragma unroll 4
  for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) {
    const i64 e = i * VECTOR;
    if (e >= begin && e + VECTOR <= end) {
      const u32 local = (u32)(e - start);
      ((Vector *)p.out)[i] = vector_at(kept, local - over(local, p.by_period) * channels);
    } else {
      for (i64 j = max(e, begin); j < min(e + VECTOR, end); ++j) p.out[j] = kept[(j - start) % channels];
    }
  }
}

#else

extern "C" __global__ void __launch_bounds__(THREADS) average_fill(const Parameters p) {
  const i64 first = (i64)blockIdx.x * p.span, corner = first * VECTOR, total = p.planes * p.cells;
  const i64 plane = corner / p.cells;
  const u32 rest = (u32)(corner - plane * p.cells);
#pragma unroll 4
  for (int i = threadIdx.x; i < p.span; i += blockDim.x) {
    const i64 e = corner + (i64)i * VECTOR;
    if (e >= total) return;
    u32 local = rest + i * VECTOR, nth = over(local, p.by_period);
    local -= nth * p.cells;
    Element value = cell_of_window(p, plane + nth);
    const u32 inside = p.cells - local;  // elements up to the next plane
    if (e + VECTOR <= total && (inside >= VECTOR || p.cells >= VECTOR)) {  // of one plane, or of two
      const Element next = inside < VECTOR ? cell_of_window(p, plane + nth + 1) : value;
      Vector made;
#pragma unroll
      for (int j = 0; j < VECTOR; ++j) made.each[j] = j < inside ? value : next;
      ((Vector *)p.out)[first + i] = made;
      continue;
    }
    for (int j = 0; j < VECTOR && e + j < total; ++j) {
      p.out[e + j] = value;
      if (++local == (u32)p.cells && e + j + 1 < total) local = 0, value = cell_of_window(p, plane + ++nth);
    }
  }
}

#endif
