// Maxima of few large windows: `parts` threads share a window, and merge their results in shared memory.
//
// Neighbouring threads read neighbouring elements: `lanes_w` threads take the cells of a row, parts / lanes_w threads
// the rows, and `lanes_c` threads the channels, if channels are innermost. `parts` and `lanes_w` are powers of two.
// The cells of the threads are interleaved, so `merge` compares places, too: of equal cells, such as -0 and +0, the
// first one wins.
//
//     WHOLE  1: a plane has one window, which is one row
//     CELLS  the most cells of a row that a thread takes, where threads unroll them, and ROWS rows; 0: too many for that
//     WARP   1: the threads of a window are in one warp
#define PLACED
#include "maximum.h"
#include "spans.h"

#define BATCH (CELLS > 0 ? CELLS : 32 / (int)sizeof(Element))  // cells of a row that a thread loads together
#define ROWS (CELLS > 0 && CELLS < 8 ? 8 / CELLS : 1)

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

// Takes N cells, `step` elements apart, of which `left` exist if CHECKED. All are loaded before the first comparison,
// as a thread that waits for each load alone reads too slowly.
template <int N, bool CHECKED>
__device__ __forceinline__ void take_cells(Best &best, const Element *at, i64 step, int left, int place,
                                           int place_step) {
  Sum values[N];
#pragma unroll
  for (int k = 0; k < N; ++k) values[k] = !CHECKED || k < left ? widen(__ldg(at + k * step)) : LOWEST;
#pragma unroll
  for (int k = 0; k < N; ++k) take(best, values[k], place + k * place_step);
}

// How many of the cells `first`, `first` + apart, … are below `count`, for a power of two `apart`.
__device__ __forceinline__ int cells_below(int count, int first, int log_apart) {
  return (count - first + (1 << log_apart) - 1) >> log_apart;
}

// Takes the cells `first`, `first` + lanes_w, … below `count` of a row that has many.
__device__ __forceinline__ void take_row(const Parameters &p, Best &best, const Element *row, int first, int count,
                                         int place) {
  const i64 step = p.step * p.lanes_w;
  const int place_step = p.place_w * p.lanes_w;
  row += p.step * first;
  place += p.place_w * first;
  int left = cells_below(count, first, p.log_lanes_w);
  for (; left >= BATCH; left -= BATCH, row += BATCH * step, place += BATCH * place_step)
    take_cells<BATCH, false>(best, row, step, BATCH, place, place_step);
  if (left > 0) take_cells<BATCH, true>(best, row, step, left, place, place_step);
}

extern "C" __global__ void __launch_bounds__(THREADS) maximum_reduce(const Parameters p) {
  SHARED(arena);
  Best *all = (Best *)arena;
  const u32 t = threadIdx.x, rest = over(t, p.by_lanes_c);
  const int part = rest & (p.parts - 1);
  // The window of this thread: (plane, od, oh, ow, some channels).
  const i64 q = (i64)blockIdx.x * p.groups + (rest >> p.log_parts);
  u32 at = (u32)q, next = over(at, p.by_c_chunks);
  const int c = (int)((at - next * p.by_c_chunks.n) * p.by_lanes_c.n + t - rest * p.by_lanes_c.n);
  const bool live = q < p.total && c < p.inner;
#if WHOLE
  const i64 plane = next, window = 0;
  Best best = best_of(LOWEST, 0);
  if (live) take_row(p, best, p.x + plane * p.plane_elements + c, part, p.W, 0);
#else
  at = next, next = over(at, p.by_wo);
  const int ow = (int)(at - next * p.by_wo.n);
  at = next, next = over(at, p.by_ho);
  const int oh = (int)(at - next * p.by_ho.n);
  at = next, next = over(at, p.by_do);
  const int od = (int)(at - next * p.by_do.n);
  const i64 plane = next, window = (od * p.Ho + oh) * p.Wo + ow;
  Best best = best_of(LOWEST, 0);
  if (live) {
    const Span d = span_d(p, od), h = span_h(p, oh), w = span_w(p, ow);
    const int lane_w = part & (p.lanes_w - 1), lane_h = part >> p.log_lanes_w, lanes_h = p.parts >> p.log_lanes_w;
#if !defined(INDEX) || INDEX != 1
    best.place = (d.first * p.H + h.first) * p.W + w.first;
#endif
    const i64 pitch = (i64)p.W * p.inner, step = pitch * p.dilation_h * lanes_h;
    const Element *from = p.x + plane * p.plane_elements + (i64)w.first * p.inner + c;
    int place = best.place + lane_h * p.place_h;
    for (int i = 0; i < d.count; ++i, place += p.place_d) {
      const Element *row =
          from + ((i64)(d.first + i * p.dilation_d) * p.H + h.first + lane_h * p.dilation_h) * pitch;
      int row_place = place;
#if CELLS
      const i64 cell_step = p.step * p.lanes_w;
      row += p.step * lane_w;
      row_place += p.place_w * lane_w;
      const int cells = cells_below(w.count, lane_w, p.log_lanes_w);
      for (int j = lane_h; j < h.count; j += ROWS * lanes_h) {
        Sum values[ROWS][CELLS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r, row += step)
#pragma unroll
          for (int k = 0; k < CELLS; ++k)
            values[r][k] = j + r * lanes_h < h.count && k < cells ? widen(__ldg(row + k * cell_step)) : LOWEST;
#pragma unroll
        for (int r = 0; r < ROWS; ++r, row_place += lanes_h * p.place_h)
#pragma unroll
          for (int k = 0; k < CELLS; ++k) take(best, values[r][k], row_place + k * p.lanes_w * p.place_w);
      }
#else
      for (int j = lane_h; j < h.count; j += lanes_h, row += step, row_place += lanes_h * p.place_h)
        take_row(p, best, row, lane_w, w.count, row_place);
#endif
    }
  }
#endif
  all[t] = best;
  for (int half = p.parts / 2; half > 0; half /= 2) {
    MEET();
    if (part < half) {
      merge(best, all[t + half * p.by_lanes_c.n]);
      all[t] = best;
    }
  }
  if (live && part == 0) {
    const i64 to = plane * p.plane_windows + window * p.inner + c;
    p.out[to] = narrow(best.value);
#ifdef INDEX
    p.places[to] = (Index)best.place;
#endif
  }
}
