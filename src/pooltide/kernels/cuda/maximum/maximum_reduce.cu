// Maxima of few large windows: `parts` threads share a window, and merge their results in shared memory.
//
// Neighbouring threads read neighbouring elements: `lanes_w` threads take the cells of a row, parts / lanes_w threads
// the rows, and `lanes_c` threads the channels, if channels are innermost. `parts` and `lanes_w` are powers of two.
// A thread takes VECTOR neighbouring channels, so that its loads are wide enough.
// The cells of the threads are interleaved, so `merge` compares places, too: of equal cells, such as -0 and +0, the
// first one wins.
//
//     VECTOR  1, or 2 or 4 channels, if channels are innermost; p.by_lanes_c and p.by_c_chunks count these vectors
//     WHOLE  1: a plane has one window, which is one row
//     CELLS  the most cells of a row that a thread takes, where threads unroll them, and ROWS rows; 0: too many for that
//     WARP   1: the threads of a window are in one warp
#define PLACED
#include "maximum.h"
#include "spans.h"

// Cells of a row that a thread loads together.
#define BATCH (CELLS > 0 ? CELLS : (VECTOR > 1 ? 64 : 32) / (VECTOR * (int)sizeof(Element)))
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

// Of each channel of a thread.
struct Bests {
  Best at[VECTOR];
};
struct alignas(VECTOR * sizeof(Element)) Cells {
  Element at[VECTOR];
};

__device__ __forceinline__ Bests bests_of(Sum value, int place) {
  Bests bests;
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) bests.at[v] = best_of(value, place);
  return bests;
}
__device__ __forceinline__ void take(Bests &bests, const Cells &cells, int place) {
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) take(bests.at[v], widen(cells.at[v]), place);
}

// One cell; minus infinity if it does not exist.
template <bool aligned>
__device__ __forceinline__ Cells load(const Element *from, bool exists) {
  Cells found;
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) found.at[v] = narrow(LOWEST);
  if (!exists) return found;
  if (aligned && VECTOR > 1) return *(const Cells *)from;
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) found.at[v] = from[v];
  return found;
}

// Takes N cells, `step` elements apart, of which `left` exist if CHECKED. All are loaded before the first comparison,
// as a thread that waits for each load alone reads too slowly.
template <int N, bool CHECKED, bool aligned>
__device__ __forceinline__ void take_cells(Bests &bests, const Element *at, i64 step, int left, int place,
                                           int place_step) {
  Cells cells[N];
#pragma unroll
  for (int k = 0; k < N; ++k) cells[k] = load<aligned>(at + k * step, !CHECKED || k < left);
#pragma unroll
  for (int k = 0; k < N; ++k) take(bests, cells[k], place + k * place_step);
}

// How many of the cells `first`, `first` + apart, … are below `count`, for a power of two `apart`.
__device__ __forceinline__ int cells_below(int count, int first, int log_apart) {
  return (count - first + (1 << log_apart) - 1) >> log_apart;
}

// Takes the cells `first`, `first` + lanes_w, … below `count` of a row that has many.
template <bool aligned>
__device__ __forceinline__ void take_row(const Parameters &p, Bests &bests, const Element *row, int first, int count,
                                         int place) {
  const i64 step = p.step * p.lanes_w;
  const int place_step = p.place_w * p.lanes_w;
  row += p.step * first;
  place += p.place_w * first;
  int left = cells_below(count, first, p.log_lanes_w);
  for (; left >= BATCH; left -= BATCH, row += BATCH * step, place += BATCH * place_step)
    take_cells<BATCH, false, aligned>(bests, row, step, BATCH, place, place_step);
  if (left > 0) take_cells<BATCH, true, aligned>(bests, row, step, left, place, place_step);
}

template <bool aligned>
__device__ __forceinline__ void reduce(const Parameters &p, Bests *all) {
  const u32 t = threadIdx.x, rest = over(t, p.by_lanes_c);
  const int part = rest & (p.parts - 1);
  // The window of this thread: (plane, od, oh, ow, some channels).
  const i64 q = (i64)blockIdx.x * p.groups + (rest >> p.log_parts);
  u32 at = (u32)q, next = over(at, p.by_c_chunks);
  const int c = (int)((at - next * p.by_c_chunks.n) * p.by_lanes_c.n + t - rest * p.by_lanes_c.n) * VECTOR;
  const bool live = q < p.total && c < p.inner;
#if WHOLE
  const i64 plane = next, window = 0;
  Bests bests = bests_of(LOWEST, 0);
  if (live) take_row<aligned>(p, bests, p.x + plane * p.plane_elements + c, part, p.W, 0);
#else
  at = next, next = over(at, p.by_wo);
  const int ow = (int)(at - next * p.by_wo.n);
  at = next, next = over(at, p.by_ho);
  const int oh = (int)(at - next * p.by_ho.n);
  at = next, next = over(at, p.by_do);
  const int od = (int)(at - next * p.by_do.n);
  const i64 plane = next, window = (od * p.Ho + oh) * p.Wo + ow;
  Bests bests = bests_of(LOWEST, 0);
  if (live) {
    const Span d = span_d(p, od), h = span_h(p, oh), w = span_w(p, ow);
    const int lane_w = part & (p.lanes_w - 1), lane_h = part >> p.log_lanes_w, lanes_h = p.parts >> p.log_lanes_w;
#if !defined(INDEX) || INDEX != 1
    bests = bests_of(LOWEST, (d.first * p.H + h.first) * p.W + w.first);
#endif
    const i64 pitch = (i64)p.W * p.inner, step = pitch * p.dilation_h * lanes_h;
    const Element *from = p.x + plane * p.plane_elements + (i64)w.first * p.inner + c;
    int place = bests.at[0].place + lane_h * p.place_h;
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
        Cells values[ROWS][CELLS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r, row += step)
#pragma unroll
          for (int k = 0; k < CELLS; ++k)
            values[r][k] = load<aligned>(row + k * cell_step, j + r * lanes_h < h.count && k < cells);
#pragma unroll
        for (int r = 0; r < ROWS; ++r, row_place += lanes_h * p.place_h)
#pragma unroll
          for (int k = 0; k < CELLS; ++k) take(bests, values[r][k], row_place + k * p.lanes_w * p.place_w);
      }
#else
      for (int j = lane_h; j < h.count; j += lanes_h, row += step, row_place += lanes_h * p.place_h)
        take_row<aligned>(p, bests, row, lane_w, w.count, row_place);
#endif
    }
  }
#endif
  all[t] = bests;
  for (int half = p.parts / 2; half > 0; half /= 2) {
    MEET();
    if (part < half) {
      const Bests &others = all[t + half * p.by_lanes_c.n];
#pragma unroll
      for (int v = 0; v < VECTOR; ++v) merge(bests.at[v], others.at[v]);
      all[t] = bests;
    }
  }
  if (live && part == 0) {
    const i64 to = plane * p.plane_windows + window * p.inner + c;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
      p.out[to + v] = narrow(bests.at[v].value);
#ifdef INDEX
      p.places[to + v] = (Index)bests.at[v].place;
#endif
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) maximum_reduce(const Parameters p) {
  SHARED(arena);
  if ((u64)p.x % sizeof(Cells) == 0)
    reduce<true>(p, (Bests *)arena);
  else
    reduce<false>(p, (Bests *)arena);
}
