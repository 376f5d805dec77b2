// The gradient of averages: every cell adds the quotients of the windows that hold it, (d, h, w) ascending.
//
//     out[cell] = ((0 + q[w0]) + q[w1]) + …        q[w] = grad[w] / divisor[w], rounded once
//
// A tensor is (outer, D, H, W, inner): N·C planes with inner = 1, or N images of C channels, PACK of them
// taken together. A block computes a tile: some planes, channels and columns, some slices, and some periods of
// rows. It first keeps the quotients of the tile's windows in shared memory. Then a thread owns one column
// (plane, w, c) of the tile and walks down its rows, so that all that depends on the column is computed once.
// It does the same for the next planes, `repeats` times, where planes are small.
//
// Rows are grouped in periods. A thread uses the same sums or registers for all rows of a period:
//     ROLL 1   windows are STRIDE rows apart and have KERNEL rows. Period o has STRIDE rows and begins at the first row
//              of window o, even if there is no window o. Period p.first_period holds the first row of the plane.
//              A thread keeps the windows of the last ROWS rows in registers
//     ROLL 0   a period is a run of rows in the same windows: (first row, end, first window, windows)
//
//     COLUMNS  the most windows that hold a cell on the w axis; 0: too many to unroll
//     SLICES   the same of the d axis, if ROLL or PAIRS
//     PAIRS    1: at most two windows hold a cell on each axis, and rows come in runs
//     FLUSH    1: the tile is contiguous in the result; its cells go through shared memory, so that short rows
//              are written by whole vectors, too
//     LINEAR   1: the rows of windows of a tile are neighbours in memory; WHOLE 1: they are all rows of its planes
//     UNIFORM  1: all windows have the same divisors
//     ONCE, BY_D, BY_H, BY_W   how to divide: see gradient_quotients.h

#include "packs.h"
#include "rotation.h"

#define UNROLLED (COLUMNS > 0 ? COLUMNS : 1)
#define BATCH (PACK * sizeof(Element) < 8 ? 8 : 4)

#define ROWS ((KERNEL + STRIDE - 1) / STRIDE)  // the most windows that hold a row, if ROLL

// The first row of a period; it may be outside the plane.
__device__ __forceinline__ int first_row(const Parameters &p, const int *runs, int period) {
#if ROLL
  return (period + p.first_period) * STRIDE - p.padding;
#else
  return period < p.periods ? runs[4 * period] : p.H;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) average_walk(const Parameters p) {
  const int *runs = p.tables, *first_d = runs + (ROLL ? 0 : 4 * p.periods), *count_d = first_d + p.D;
  const int *first_w = count_d + p.D, *count_w = first_w + p.W;
  const int t = threadIdx.x;

  // The tile of this block.
  u32 at = blockIdx.x, rest = over(at, p.by_h_chunks);
  const int o0 = (at - rest * p.by_h_chunks.n) * p.h_chunk, o1 = min(o0 + p.h_chunk, p.periods);
  at = rest, rest = over(at, p.by_d_chunks);
  const int d0 = (at - rest * p.by_d_chunks.n) * p.d_chunk, d1 = min(d0 + p.d_chunk, p.D);
  at = rest, rest = over(at, p.by_c_chunks);
  const int c0 = (at - rest * p.by_c_chunks.n) * p.by_tc.n;
  at = rest, rest = over(at, p.by_w_chunks);
  const int w0 = (at - rest * p.by_w_chunks.n) * p.by_tw.n;
  i64 plane0 = (i64)rest * p.by_share.n * p.repeats;

  const int row_windows = p.Wo * p.inner, plane_windows = p.Do * p.Ho * row_windows, pitch = p.W * p.inner;

  // The column of this thread, and the slices and periods that it walks down.
  rest = over(t, p.by_tc);
  const int c = t - rest * p.by_tc.n;
  at = rest, rest = over(at, p.by_tw);
  const int w = at - rest * p.by_tw.n;
  at = rest, rest = over(at, p.by_share);
  const int plane = at - rest * p.by_share.n;
  const int from_d = d0 + (int)rest % p.d_walks * p.d_walk, to_d = min(from_d + p.d_walk, d1);
  const int from_o = o0 + (int)rest / p.d_walks * p.h_walk, to_o = min(from_o + p.h_walk, o1);
  const bool within = from_o < to_o && w0 + w < p.W && c0 + c < p.inner;
  const int mine = within ? first_w[w0 + w] : 0, held = within ? count_w[w0 + w] : 0;

  Divisors by;
  by.d = p.divisors[0], by.rd = p.divisors[1];
  by.h = p.divisors[2 * p.Do], by.rh = p.divisors[2 * p.Do + 1];
  by.w = p.divisors[2 * (p.Do + p.Ho)], by.rw = p.divisors[2 * (p.Do + p.Ho) + 1];

  SHARED(arena);
  // A row of zeros, then nd slices of nh rows for each plane. Rows end with a zero.
  const int row = p.width + 1;
  Sums *zero = (Sums *)arena, *staged = zero + row;
  const int wd0 = first_d[d0], nd = first_d[d1 - 1] + count_d[d1 - 1] - wd0, ww0 = first_w[w0];
#if ROLL
  const int wh0 = max(o0 + p.first_period - ROWS + 1, 0), nh = max(min(o1 + p.first_period, p.Ho) - wh0, 0);
#else
  const int wh0 = runs[4 * o0 + 2], nh = runs[4 * o1 - 2] + runs[4 * o1 - 1] - wh0;
#endif
  const int most = p.by_share.n * nd * nh + row;
  for (int i = t; i < most; i += blockDim.x) zero[i < row ? i : (i - row + 2) * row - 1] = zeros();
  const u32 group = over(t, p.by_lanes);
  int offsets[UNROLLED];
#pragma unroll
  for (int m = 0; m < UNROLLED; ++m) offsets[m] = m < held ? (mine - ww0 + m) * p.by_tc.n + c : p.width;

  for (int again = 0; again < p.repeats && plane0 < p.planes; ++again, plane0 += p.by_share.n) {
    const int planes = (int)min((i64)p.by_share.n, p.planes - plane0);
    const bool live = within && plane < planes;
    const Elements *grad = (const Elements *)p.grad + plane0 * plane_windows;
    Elements *out = (Elements *)p.out + ((plane0 + plane) * p.D * p.H * p.W + w0 + w) * p.inner + c0 + c;

    const int rows = planes * nd * nh;
    if (again) __syncthreads();
    // Threads own columns of windows here. A tile has several planes only if it has all of their rows.
    for (int column = t - group * p.by_lanes.n; group < p.groups && column < p.width; column += p.by_lanes.n) {
      const u32 ww = over(column, p.by_tc);
      const int channel = column - ww * p.by_tc.n;
      if (ww0 + ww >= p.Wo || c0 + channel >= p.inner) continue;
      const Elements *from = grad + (wd0 * p.Ho + wh0) * row_windows + (ww0 + ww) * p.inner + c0 + channel;
      Sums *to = staged + column;
      int r = group;
#if !UNIFORM
      const Sum *of_w = p.divisors + 2 * (p.Do + p.Ho + ww0 + ww);
      by.w = of_w[0], by.rw = of_w[1];
#endif
      auto source = [&](int r) {
#if LINEAR
        return r * row_windows;
#else
        return (r + r / nh * (p.Ho - nh)) * row_windows;
#endif
      };
      auto put = [&](int r, const Elements &g) {
#if !UNIFORM
#if WHOLE
        const u32 slice = over(r, p.by_ho), d = slice - over(slice, p.by_do) * p.Do, h = r - slice * p.Ho;
#else
        const int d = p.Do == 1 ? 0 : r / nh, h = r - d * nh;
#endif
        const Sum *of_d = p.divisors + 2 * (wd0 + d), *of_h = p.divisors + 2 * (p.Do + wh0 + h);
        by.d = of_d[0], by.rd = of_d[1], by.h = of_h[0], by.rh = of_h[1];
#endif
        to[r * row] = divided(g, by);
      };
      // Several loads at a time: the more of them are under way, the less a thread waits for memory.
      for (; r + ((int)BATCH - 1) * p.groups < rows; r += BATCH * p.groups) {
        Elements batch[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) batch[i] = from[source(r + i * p.groups)];
        keep_order();
#pragma unroll
        for (int i = 0; i < BATCH; ++i) put(r + i * p.groups, batch[i]);
      }
      for (; r < rows; r += p.groups) put(r, from[source(r)]);
    }
    __syncthreads();
    const Sums *below = staged + plane * nd * nh * row;
#if FLUSH
    // The tile begins at the same place within a vector as in the result.
    const int top = max(first_row(p, runs, o0), 0), bottom = min(first_row(p, runs, o1), p.H);
    const i64 corner = (plane0 * p.D * p.H + d0 * p.H + top) * pitch;
    Elements *const first = (Elements *)p.out + corner, *const tile = (Elements *)(arena + p.tile_at) + skipped(first);
    const int size = (p.by_share.n > 1 ? planes * p.D * p.H : (d1 - d0) * (bottom - top)) * pitch;
    out = tile - (d0 * p.H + top) * pitch + plane * p.D * p.H * pitch + w * p.inner + c;
#endif

    for (int d = from_d; live && d < to_d; ++d) {
      const int fd = first_d[d], cd = count_d[d];
#if ROLL
      int h = first_row(p, runs, from_o);
      Elements *to = out + (d * p.H + h) * pitch;
      const int slice = nh * row, last = to_o + p.first_period;
      const Sums *lines = below + ((fd - wd0) * nh - wh0) * row;  // where the row of window 0 would be
      Sums registers[ROWS][SLICES][UNROLLED];
      auto enter = [&](int slot, int o) {
#pragma unroll
        for (int i = 0; i < SLICES; ++i) {
          const Sums *line = (u32)o < (u32)p.Ho && i < cd ? lines + o * row + i * slice : zero;
#pragma unroll
          for (int m = 0; m < UNROLLED; ++m) registers[slot][i][m] = line[offsets[m]];
        }
      };
      auto leave = [&](int u) {
#pragma unroll
        for (int j = 0; j < STRIDE; ++j) {
          const int n = j < KERNEL ? (KERNEL - 1 - j) / STRIDE + 1 : 0;
          Sums sum = zeros();
#pragma unroll
          for (int i = 0; i < SLICES; ++i)
#pragma unroll
            for (int k = ROWS - n; k < ROWS; ++k)
#pragma unroll
              for (int m = 0; m < UNROLLED; ++m) add(sum, registers[(u + k) % ROWS][i][m]);
          if (STRIDE == 1 || (u32)h < (u32)p.H) *to = narrowed(sum);
          ++h, to += pitch;
        }
      };
      rotate<ROWS>(from_o + p.first_period, last, enter, leave);
#else
      int4 next = ((const int4 *)runs)[from_o];  // first row, end, first window, windows
      for (int o = from_o; o < to_o; ++o) {
        const int4 run = next;
        if (o + 1 < to_o) next = ((const int4 *)runs)[o + 1];
        Sums sum = zeros();
#if PAIRS
        const Sums *lines = below + ((fd - wd0) * nh + run.z - wh0) * row;
#pragma unroll
        for (int i = 0; i < SLICES; ++i) {
          if (i < cd && run.w > 0) {
#pragma unroll
            for (int m = 0; m < UNROLLED; ++m) add(sum, lines[i * nh * row + offsets[m]]);
          }
          if (i < cd && run.w > 1) {
#pragma unroll
            for (int m = 0; m < UNROLLED; ++m) add(sum, lines[(i * nh + 1) * row + offsets[m]]);
          }
        }
#else
        for (int i = 0; i < cd; ++i) {
          for (int j = 0; j < run.w; ++j) {
            const Sums *from = below + ((fd - wd0 + i) * nh + run.z - wh0 + j) * row;
#if COLUMNS
#pragma unroll
            for (int m = 0; m < COLUMNS; ++m) add(sum, from[offsets[m]]);
#else
            for (int m = 0; m < held; ++m) add(sum, from[offsets[0] + m * p.by_tc.n]);
#endif
          }
        }
#endif
        const Elements value = narrowed(sum);
        Elements *to = out + (d * p.H + run.x) * pitch;
        for (int h = run.x; h < run.y; ++h, to += pitch) *to = value;
      }
#endif
    }

#if FLUSH
    __syncthreads();
    write_run(first, tile, size);
#endif
  }
}
