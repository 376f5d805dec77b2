// The general kernels: any pool and any gradient, from arguments alone.
//
// A general kernel is compiled for a dtype and an index type only, so it can compute a problem at once, while the
// problem's own kernel is compiled. It needs no tables, so it can be launched while a CUDA graph is captured.
// A tensor is (units, D, H, W, inner): N·C planes with inner = 1, or N images with C channels. A block computes
// p.chunk elements of one unit of the result, a thread every blockDim.x-th of them.
//
//     KIND  0 average, 1 maximum, 2 gradient of an average, 3 gradient of a maximum
#include "axes.h"
#include "warps.h"

#if KIND == 1
#include "maximum.h"
#elif KIND == 3
#include "faults.h"
#include "two_passes.h"
#endif

__device__ __forceinline__ int cells_of(const Parameters &p) { return p.d.length * p.h.length * p.w.length; }
__device__ __forceinline__ int windows_of(const Parameters &p) { return p.d.outputs * p.h.outputs * p.w.outputs; }

// Element e of a unit: its channel, and its place on the axes, which have d · h · w places.
struct Place {
  int c, d, h, w;
};

__device__ __forceinline__ Place place_of(const Parameters &p, u32 e, int h, int w) {
  Place at;
  u32 rest = e / (u32)p.inner;
  at.c = e - rest * p.inner;
  at.w = rest % (u32)w, rest /= (u32)w;
  at.h = rest % (u32)h, at.d = rest / (u32)h;
  return at;
}

// Calls body(e, place) for the thread's elements of the block's unit.
template <class Body>
__device__ __forceinline__ void each_element(const Parameters &p, int part, int size, int h, int w, Body body) {
  const int end = min((i64)(part + 1) * p.chunk, (i64)size);
  for (int e = part * p.chunk + threadIdx.x; e < end; e += blockDim.x) body(e, place_of(p, e, h, w));
}

#if KIND == 0 || KIND == 2
// Divides by the divisor of window (od, oh, ow). QUOTIENT of general.py: 0 chained, 1 extent, 2 valid, 3 override.
static __device__ __noinline__ Sum divided(const Parameters &p, Sum x, int od, int oh, int ow) {
  if (p.quotient == 3) return x / (Sum)p.divisor;
  if (p.quotient == 1) return x / (Sum)(extent(p.d, od) * extent(p.h, oh) * extent(p.w, ow));
  const i64 d = max(cells(p.d, od).count, 1), h = max(cells(p.h, oh).count, 1), w = max(cells(p.w, ow).count, 1);
  return p.quotient == 2 ? x / (Sum)(d * h * w) : x / (Sum)d / (Sum)h / (Sum)w;
}
#endif

#if KIND >= 2
// Calls body(window, d, h, w) for the windows that hold a cell, in ascending order. `at` is the cell.
template <class Body>
__device__ __forceinline__ void each_window(const Parameters &p, const Place &at, Body body) {
  const Range d = windows(p.d, at.d), h = windows(p.h, at.h), w = windows(p.w, at.w);
#pragma unroll 1
  for (int i = d.first; i < d.first + d.count; ++i)
#pragma unroll 1
    for (int j = h.first; j < h.first + h.count; ++j)
#pragma unroll 1
      for (int k = w.first; k < w.first + w.count; ++k) body((i * p.h.outputs + j) * p.w.outputs + k, i, j, k);
}
#endif

#if KIND < 2
extern "C" __global__ void __launch_bounds__(THREADS) general(const Parameters p) {
  const i64 unit = blockIdx.x / p.parts;
  const Element *x = p.x + unit * cells_of(p) * p.inner;
  const i64 results = unit * windows_of(p) * p.inner;
  each_element(p, blockIdx.x % p.parts, windows_of(p) * p.inner, p.h.outputs, p.w.outputs, [&](int e, Place o) {
    const Range d = cells(p.d, o.d), h = cells(p.h, o.h), w = cells(p.w, o.w);
    auto each_cell = [&](auto body) {
#pragma unroll 1
      for (int i = 0; i < d.count; ++i)
#pragma unroll 1
        for (int j = 0; j < h.count; ++j)
#pragma unroll 1
          for (int k = 0; k < w.count; ++k) {
            const int row = (d.first + i * p.d.dilation) * p.h.length + h.first + j * p.h.dilation;
            const int cell = row * p.w.length + w.first + k * p.w.dilation;
            body(widen(x[(i64)cell * p.inner + o.c]), cell, i, j, k);
          }
    };
#if KIND == 0
    Sum sum = 0;
    each_cell([&](Sum value, int, int, int, int) { sum += value; });
    const Sum quotient = divided(p, sum, o.d, o.h, o.w);
    p.out[results + e] = narrow(p.quotient == 0 ? quotient : quotient + (Sum)0);  // only a chained quotient may be -0
#else
#if defined(INDEX) && INDEX == 1
    Best best = best_of(LOWEST, 0);
#else
    Best best = best_of(LOWEST, (d.first * p.h.length + h.first) * p.w.length + w.first);
#endif
    each_cell([&](Sum value, int cell, int i, int j, int k) {
#if defined(INDEX) && INDEX == 1
      cell = (i * p.most_h + j) * p.most_w + k;
#endif
      take(best, value, cell);
    });
    p.out[results + e] = narrow(best.value);
#ifdef INDEX
    p.places[results + e] = (Index)best.place;
#endif
#endif
  });
}
#elif KIND == 2
extern "C" __global__ void __launch_bounds__(THREADS) general(const Parameters p) {
  const i64 unit = blockIdx.x / p.parts;
  const Element *grad = p.grad + unit * windows_of(p) * p.inner;
  Element *out = p.out + unit * cells_of(p) * p.inner;
  each_element(p, blockIdx.x % p.parts, cells_of(p) * p.inner, p.h.length, p.w.length, [&](int e, Place at) {
    Sum sum = 0;
    each_window(p, at, [&](i64 window, int i, int j, int k) {
      sum += divided(p, widen(grad[window * p.inner + at.c]), i, j, k);
    });
    out[e] = narrow(sum);
  });
}
#else

// The cell of its plane that the index of window q names, or -1 if the index is outside the plane.
static __device__ __noinline__ int named_cell(const Parameters &p, Index index, int q) {
#if INDEX == 1
  const int k = index % p.most_w, j = index / p.most_w % p.most_h, i = index / (p.most_w * p.most_h);
  if (i >= p.most_d) return -1;
  const int row = q / p.w.outputs, slice = row / p.h.outputs;
  const int d = cells(p.d, slice).first, h = cells(p.h, row - slice * p.h.outputs).first;
  const int w = cells(p.w, q - row * p.w.outputs).first;
  const i64 rows = (i64)(d + i * p.d.dilation) * p.h.length + h + j * p.h.dilation;
  const i64 cell = rows * p.w.length + w + k * p.w.dilation;
#else
  const i64 cell = index;
#endif
  return (u64)cell < (u64)cells_of(p) ? (int)cell : -1;
}

// Adds the gradients of the windows that hold a cell and name it. Returns how many were added.
__device__ __forceinline__ int gather(const Parameters &p, i64 unit, int e, Place at) {
  const i64 first = unit * windows_of(p) * p.inner + at.c;
  const int cell = (at.d * p.h.length + at.h) * p.w.length + at.w;
  Sum sum = 0;
  int added = 0;
  each_window(p, at, [&](int q, int, int, int) {
    if (named_cell(p, p.indices[first + (i64)q * p.inner], q) != cell) return;
    sum += widen(p.grad[first + (i64)q * p.inner]);
    ++added;
  });
  p.out[unit * cells_of(p) * p.inner + e] = narrow(sum);
  return added;
}

// Computes a unit whatever its indices name. A warp keeps a band of sums, and reads all windows of the unit for each.
__device__ __forceinline__ void scatter(const Parameters &p, i64 unit, Sum *sums) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int size = cells_of(p) * p.inner, gradients = windows_of(p) * p.inner;
  const i64 first = unit * gradients;
  for (int begin = threadIdx.x / 32 * BAND; begin < size; begin += warps * BAND) {
#pragma unroll 1
    for (int i = lane; i < BAND; i += 32) sums[i] = 0;
    __syncwarp();
    for (int base = 0; base < gradients; base += 32) {
      const int g = base + lane;
      int local = -1;
      Sum gradient = 0;
      if (g < gradients) {
        const int q = g / (u32)p.inner, c = g - q * p.inner, cell = named_cell(p, p.indices[first + g], q);
        if (cell < 0 && begin == 0) report_fault(p.faults, (unit * p.inner + c) * windows_of(p) + q);
        const u32 from = (u32)(cell * p.inner + c - begin);
        if (cell >= 0 && from < BAND) local = from, gradient = widen(p.grad[first + g]);
      }
      add_in_order(sums, local, gradient, lane);
    }
#pragma unroll 1
    for (int i = lane; i < min(BAND, size - begin); i += 32) p.out[unit * size + begin + i] = narrow(sums[i]);
    __syncwarp();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) general(const Parameters p) {
  __shared__ int total;
  __shared__ Sum sums[THREADS / 32][BAND];
  auto compute = [&](i64 unit, int from, int to, bool everything) {
    int added = 0;
    if (everything) {
      scatter(p, unit, sums[threadIdx.x / 32]);
    } else {
      const int size = cells_of(p) * p.inner;
      for (int part = from; part < to; ++part)
        each_element(p, part, size, p.h.length, p.w.length,
                     [&](int e, Place at) { added += gather(p, unit, e, at); });
    }
    return added;
  };
  in_two_passes(p, p.units, 1, p.parts, &total, [&](i64) { return windows_of(p) * p.inner; }, compute);
}
#endif
