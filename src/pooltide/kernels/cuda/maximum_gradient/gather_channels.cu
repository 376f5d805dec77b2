// The gradient of maxima of images whose channels are innermost, where few windows hold a cell: every cell adds the
// gradients of those of its windows whose indices name it, in ascending order of the windows.
//
// A thread owns VECTOR neighbouring channels of a column of a slice, and walks down `chunk` of its rows. Threads share
// no sums, so the loads of all windows can overlap.
//
// If an index names a cell outside its window, no thread adds its gradient. So blocks count the gradients that they
// add, and scatter_channels.cu computes the images again if gradients are missing (two_passes.h). A block computes one
// of `parts` parts of `share` images.
//
//     DISJOINT 1  no cell is in two windows, so neighbouring rows have the same window
//     COLUMNS     the most windows that hold a cell on the w axis; 0: too many to unroll
#include "warps.h"

#define LEAST(a, b) ((a) < (b) ? (a) : (b))

struct __align__(VECTOR * sizeof(Element)) Elements {
  Element each[VECTOR];
};
struct __align__(LEAST(16, VECTOR * sizeof(Index))) Indices {
  Index each[VECTOR];
};

// Writes VECTOR sums.
__device__ __forceinline__ void write(Element *to, const Sum *sums) {
  Elements made;
  narrow_all<VECTOR>(made.each, sums);
  *(Elements *)to = made;
}

extern "C" __global__ void __launch_bounds__(THREADS) gather_channels(const Parameters p) {
  let_next_launch_start();
  __shared__ int total;
  // Of each axis: the first window of a cell and how many windows hold it; then the first cell of each window.
  const int *of_d = p.windows, *of_h = of_d + 2 * p.D, *of_w = of_h + 2 * p.H;
  const int *from_d = of_w + 2 * p.W, *from_h = from_d + p.Do, *from_w = from_h + p.Ho;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();

  // The image of this thread, its slice, rows, column and channels.
  const u32 unit = over(blockIdx.x, p.by_parts);
  u32 at = (blockIdx.x - unit * p.by_parts.n) * THREADS + threadIdx.x, rest = over(at, p.by_vectors);
  const int c = (at - rest * p.by_vectors.n) * VECTOR;
  at = rest, rest = over(at, p.by_w);
  const int w = at - rest * p.by_w.n;
  at = rest, rest = over(at, p.by_chunks);
  const int first = (at - rest * p.by_chunks.n) * p.chunk, last = min(first + p.chunk, p.H);
  at = rest, rest = over(at, p.by_d);
  const int d = at - rest * p.by_d.n;
  const i64 image = (i64)unit * p.share + rest;

  int added = 0;
  if ((int)rest < p.share && image < p.images) {
    const int fd = of_d[2 * d], cd = of_d[2 * d + 1], fw = of_w[2 * w], cw = of_w[2 * w + 1];
    const Element *grad = p.grad + image * p.plane_windows * p.channels + c;
    const Index *indices = p.indices + image * p.plane_windows * p.channels + c;
    Element *out = p.out + ((image * p.D + d) * p.H + first) * p.W * p.channels + w * p.channels + c;
#if DISJOINT
    int loaded = -1;  // the window in these registers
#endif
    Elements gradients;
    Indices found;
    for (int h = first; h < last; ++h, out += p.W * p.channels) {
      const int fh = of_h[2 * h], ch = of_h[2 * h + 1];
      const int cell = (d * p.H + h) * p.W + w;
      Sum sums[VECTOR] = {};
      for (int i = fd; i < fd + cd; ++i)
        for (int k = fh; k < fh + ch; ++k) {
          const int row = (i * p.Ho + k) * p.Wo;
          auto visit = [&](int m) {
#if DISJOINT
            if (row + m != loaded) {
              loaded = row + m;
#endif
              gradients = *(const Elements *)(grad + (row + m) * p.channels);
              found = *(const Indices *)(indices + (row + m) * p.channels);
#if DISJOINT
            }
#endif
#if INDEX == 1
            const Index wanted = ((d - from_d[i]) * p.window_h + h - from_h[k]) * p.window_w + w - from_w[m];
#else
            const Index wanted = cell;
#endif
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
              if (found.each[j] != wanted) continue;
              sums[j] += widen(gradients.each[j]);
              ++added;
            }
          };
#if COLUMNS
#pragma unroll
          for (int m = 0; m < COLUMNS; ++m)
            if (m < cw) visit(fw + m);
#else
          for (int m = 0; m < cw; ++m) visit(fw + m);
#endif
        }
      write(out, sums);
    }
  }
  added = sum_of_warp(added);
  if (threadIdx.x % 32 == 0 && added) atomicAdd(&total, added);
  __syncthreads();
  if (threadIdx.x == 0) p.counts[blockIdx.x] = total;
}
