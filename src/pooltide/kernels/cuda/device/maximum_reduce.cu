// Maxima of few large windows: `parts` threads share a window, and meet in shared memory.
//
// Neighbouring threads read neighbouring elements: `lanes_w` threads take the cells of a row, `lanes_h` threads the
// rows, and `lanes_c` threads the channels, if those are innermost. All of them are powers of two but lanes_c.
// Threads see the cells of a window out of order, so they compare places, too: they settle which of equal
// cells, such as -0 and +0, is the first.
//
//     ONCE  1: no row of a window has more than lanes_w cells
//     WARP  1: the threads of a window are in one warp
#define PLACED
#include "maximum.h"
#include "spans.h"

#if WARP
#define MEET() __syncwarp()
#else
#define MEET() __syncthreads()
#endif

// Takes the best of other cells, before or after those of `best`.
__device__ __forceinline__ void merge(Best &best, const Best &other) {
  const bool nan = best.value != best.value, other_nan = other.value != other.value;
  const bool later = other.place > best.place;
  const bool wins = other.value > best.value || (other.value == best.value && !later) ||
                    (other_nan && (!nan || later));
  if (wins) best = other;
}

extern "C" __global__ void __launch_bounds__(THREADS) maximum_reduce(const Parameters p) {
  SHARED(arena);
  Best *all = (Best *)arena;
  const u32 t = threadIdx.x;
  const u32 rest = over(t, p.by_lanes_c), ct = t - rest * p.by_lanes_c.n;
  const int part = rest & (p.parts - 1), lane_w = part & (p.lanes_w - 1), lane_h = part / p.lanes_w;
  // The window of this thread: (plane, od, oh, ow, some channels).
  const i64 q = (i64)blockIdx.x * p.groups + rest / p.parts;
  u32 at = (u32)q, next = over(at, p.by_c_chunks);
  const int c = (int)((at - next * p.by_c_chunks.n) * p.by_lanes_c.n + ct);
  at = next, next = over(at, p.by_wo);
  const int ow = (int)(at - next * p.by_wo.n);
  at = next, next = over(at, p.by_ho);
  const int oh = (int)(at - next * p.by_ho.n);
  at = next, next = over(at, p.by_do);
  const int od = (int)(at - next * p.by_do.n);
  const i64 plane = next;
  const bool live = q < p.total && c < p.inner && (int)(rest / p.parts) < p.groups;

  Best best = best_of(LOWEST, 0);
  if (live) {
    const Span d = span_d(p, od), h = span_h(p, oh), w = span_w(p, ow);
#if !defined(INDEX) || INDEX != 1
    best.place = (d.first * p.H + h.first) * p.W + w.first;
#endif
    const int pitch = p.W * p.inner, step = p.dilation_w * p.inner, first = best.place;
    const Element *from = p.x + plane * p.plane_elements + c;
    int i = 0, j = lane_h;
    const int rows = d.count * h.count;
#pragma unroll 4
    for (int r = lane_h; r < rows; r += p.lanes_h, j += p.lanes_h) {
      while (j >= h.count) j -= h.count, ++i;
      const i64 row = (i64)(d.first + i * p.dilation_d) * p.H + h.first + j * p.dilation_h;
      const Element *cells = from + row * pitch + (i64)w.first * p.inner;
      const int place = first + i * p.place_d + j * p.place_h;
#if ONCE
      if (lane_w < w.count) take(best, widen(cells[lane_w * step]), place + lane_w * p.place_w);
#else
#pragma unroll 8
      for (int m = lane_w; m < w.count; m += p.lanes_w) take(best, widen(cells[m * step]), place + m * p.place_w);
#endif
    }
  }
  all[t] = best;
  for (int half = p.parts / 2; half > 0; half /= 2) {
    MEET();
    if (part < half) {
      merge(best, all[t + half * p.by_lanes_c.n]);
      all[t] = best;
    }
  }
  if (live && part == 0) {
    const i64 to = plane * p.plane_windows + (i64)((od * p.Ho + oh) * p.Wo + ow) * p.inner + c;
    PUT(p, to, best);
  }
}
