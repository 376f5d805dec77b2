// The gradient of averages whose windows are a stride apart and overlap: every cell adds the quotients of the windows
// that hold it, (d, h, w) ascending.
//
//     out[cell] = ((0 + q[w0]) + q[w1]) + …        q[w] = grad[w] / divisor[w], rounded once
//
// A tensor is (planes, D, H, W, inner): N·C planes with inner = 1, or N images of channels, PACK of them taken
// together. A block computes a tile: some planes, slices, rows, columns and channels. It keeps the quotients of the
// tile's windows in shared memory. A thread then owns CELLS_H × CELLS_W neighbouring cells of a slice: it reads each
// quotient once for all of its cells, and the compiler knows which of the cells each one belongs to.
//
// Rows are grouped in periods: windows are STRIDE_H rows apart and have KERNEL_H rows. Period o has STRIDE_H rows and
// begins at the first row of window o, even if there is no window o. Period p.first_h holds the first row of the plane.
// A thread owns PERIODS_H periods. The same holds for columns.
// Windows that do not exist have the quotient 0. That changes no sum: sums begin with +0, so they are never -0.
//
//     INNER     1: channels are innermost, else p.inner is 1
//     FLUSH     1: the cells of the tile go through shared memory, so that the lanes of a warp write neighbours
//     GAP       vectors after each slice of such a tile, which put the cells of neighbouring lanes into different banks
//     CHUNK     rows of windows that a thread loads at once
//     UNROLLED  rows of windows whose additions are written out one after another: all of them, or 1
//     UNIFORM   1: all windows have the same divisors
//     ONCE, BY_D, BY_H, BY_W   how to divide: see gradient_quotients.h
#include "packs.h"

#define ROWS ((KERNEL_H + STRIDE_H - 1) / STRIDE_H)     // the most windows that hold a row,
#define COLUMNS ((KERNEL_W + STRIDE_W - 1) / STRIDE_W)  // and a column
#define CELLS_H (PERIODS_H * STRIDE_H)
#define CELLS_W (PERIODS_W * STRIDE_W)
#define LINES (PERIODS_H + ROWS - 1)    // rows of windows that hold a thread's cells,
#define LINE (PERIODS_W + COLUMNS - 1)  // and windows in such a row

// How many windows of an axis hold cell `j` of a period. The last of them is the window at which the period begins.
__device__ constexpr int held(int j, int kernel, int stride) { return j < kernel ? (kernel - 1 - j) / stride + 1 : 0; }

// Adds a slice of windows to the sums of a thread's cells. `lines` points to the first of its windows; rows of windows
// exist from row `low` to row `high` - 1, counted from there.
__device__ __forceinline__ void add_slice(Sums (&sums)[CELLS_H][CELLS_W], const Sums *lines, int pitch, int step,
                                          int low, int high) {
#pragma unroll UNROLLED
  for (int u = 0; u < LINES; ++u, lines += pitch) {
    if (u < low || u >= high) continue;
    Sums line[LINE];
#pragma unroll
    for (int m = 0; m < LINE; ++m) line[m] = lines[m * step];
#pragma unroll
    for (int r = 0; r < CELLS_H; ++r) {
      const int last = r / STRIDE_H + ROWS - 1;
      if (u > last || u <= last - held(r % STRIDE_H, KERNEL_H, STRIDE_H)) continue;
#pragma unroll
      for (int x = 0; x < CELLS_W; ++x) {
        const int end = x / STRIDE_W + COLUMNS;
#pragma unroll
        for (int m = end - held(x % STRIDE_W, KERNEL_W, STRIDE_W); m < end; ++m) add(sums[r][x], line[m]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) average_dense(const Parameters p) {
  SHARED(arena);
  Sums *kept = (Sums *)arena;
  const int *first_d = p.tables, *count_d = first_d + p.D;
  const int t = threadIdx.x, inner = INNER ? p.inner : 1, step = INNER ? p.by_tc.n : 1;

  // The tile of this block: first periods of rows and columns, slices, channels, planes.
  u32 at = blockIdx.x, rest = over(at, p.by_tiles_h);
  const int h0 = (at - rest * p.by_tiles_h.n) * p.tile_h + p.first_h;
  at = rest, rest = over(at, p.by_tiles_w);
  const int w0 = (at - rest * p.by_tiles_w.n) * p.tile_w + p.first_w;
  at = rest, rest = over(at, p.by_tiles_d);
  const int d0 = (at - rest * p.by_tiles_d.n) * p.by_td.n, d1 = min(d0 + (int)p.by_td.n, p.D);
  at = rest, rest = over(at, p.by_tiles_c);
  const int c0 = (at - rest * p.by_tiles_c.n) * step;
  const i64 plane0 = (i64)rest * p.by_share.n;
  const int planes = (int)min((i64)p.by_share.n, p.planes - plane0);

  // The windows of the tile. The first of them may be outside the plane.
  const int from_h = h0 - ROWS + 1, from_w = w0 - COLUMNS + 1, from_d = first_d[d0];
  const int end_h = min(h0 + p.tile_h, p.Ho), end_w = min(w0 + p.tile_w, p.Wo);
  const int end_d = first_d[d1 - 1] + count_d[d1 - 1];
  for (int i = t; i < p.kept_vectors; i += blockDim.x) ((uint4 *)arena)[i] = make_uint4(0, 0, 0, 0);
  __syncthreads();

  Divisors by;
  by.d = p.divisors[0], by.rd = p.divisors[1];
  by.h = p.divisors[2 * p.Do], by.rh = p.divisors[2 * p.Do + 1];
  by.w = p.divisors[2 * (p.Do + p.Ho)], by.rw = p.divisors[2 * (p.Do + p.Ho) + 1];
  const int row_windows = p.Wo * inner;
  const Elements *grad = (const Elements *)p.grad + plane0 * p.Do * p.Ho * row_windows;
  for (int i = t; i < p.items; i += blockDim.x) {
    rest = over(i, p.by_columns);
    const u32 column = i - rest * p.by_columns.n;
    at = rest, rest = over(at, p.by_chunks);
    const int h = max(from_h, 0) + (at - rest * p.by_chunks.n) * CHUNK, left = min(end_h - h, CHUNK);
    at = rest, rest = over(at, p.by_nd);
    const int d = from_d + at - rest * p.by_nd.n, plane = rest;
    const u32 nth = INNER ? over(column, p.by_tc) : column;
    const int c = INNER ? column - nth * step : 0, w = max(from_w, 0) + nth;
    if (left <= 0 || w >= end_w || d >= end_d || plane >= planes || c0 + c >= inner) continue;
    const Elements *from = grad + ((i64)(plane * p.Do + d) * p.Ho + h) * row_windows + w * inner + c0 + c;
    Sums *to = kept + plane * p.plane_pitch + (d - from_d) * p.slice_pitch + (h - from_h) * p.pitch;
    to += (w - from_w) * step + c;
#if !UNIFORM
    const Sum *of_d = p.divisors + 2 * d, *of_w = p.divisors + 2 * (p.Do + p.Ho + w);
    by.d = of_d[0], by.rd = of_d[1], by.w = of_w[0], by.rw = of_w[1];
#endif
    Elements loaded[CHUNK];
#pragma unroll
    for (int r = 0; r < CHUNK; ++r)
      if (r < left) loaded[r] = from[r * row_windows];
    keep_order();
#pragma unroll
    for (int r = 0; r < CHUNK; ++r) {
      if (r >= left) break;
#if !UNIFORM
      const Sum *of_h = p.divisors + 2 * (p.Do + h + r);
      by.h = of_h[0], by.rh = of_h[1];
#endif
      to[r * p.pitch] = divided(loaded[r], by);
    }
  }
  __syncthreads();

  // The cells of this thread.
  rest = INNER ? over(t, p.by_tc) : t;
  const int c = INNER ? t - rest * step : 0;
  at = rest, rest = over(at, p.by_tw);
  const int w = (at - rest * p.by_tw.n) * PERIODS_W;
  at = rest, rest = over(at, p.by_td);
  const int slice = at - rest * p.by_td.n, d = d0 + slice;
  at = rest, rest = over(at, p.by_share);
  const int plane = at - rest * p.by_share.n, h = rest * PERIODS_H;
  const bool live = h < p.tile_h && plane < planes && d < d1 && c0 + c < inner;
  Sums sums[CELLS_H][CELLS_W];
#pragma unroll
  for (int r = 0; r < CELLS_H; ++r)
#pragma unroll
    for (int x = 0; x < CELLS_W; ++x) sums[r][x] = zeros();
  if (live) {
    const Sums *lines = kept + plane * p.plane_pitch + (first_d[d] - from_d) * p.slice_pitch;
    lines += h * p.pitch + w * step + c;
    const int low = -from_h - h, high = p.Ho + low;
    for (int i = count_d[d]; i > 0; --i, lines += p.slice_pitch) add_slice(sums, lines, p.pitch, step, low, high);
  }

  // The cells of the tile that are in the plane.
  const int row0 = h0 * STRIDE_H - p.padding_h, top = max(row0, 0), bottom = min(row0 + p.tile_h * STRIDE_H, p.H);
  const int column0 = w0 * STRIDE_W - p.padding_w, begin = max(column0, 0);
  const int end = min(column0 + p.tile_w * STRIDE_W, p.W);
  Elements *out = (Elements *)p.out + (((plane0 * p.D + d0) * p.H + top) * p.W + begin) * inner;
#if FLUSH
  const int rows = bottom - top, run = (end - begin) * inner, slices = d1 - d0;
  const bool contiguous = end - begin == p.W && (rows == p.H || slices == 1);
  Elements *tile = (Elements *)arena + (contiguous && !GAP ? skipped(out) : 0);
  Elements *to = tile + (plane * slices + slice) * (rows * run + GAP * VECTOR) + c;
  const int pitch = run;
  __syncthreads();
#else
  Elements *to = out + ((i64)plane * p.D + slice) * p.H * p.W * inner + c0 + c;
  const int pitch = p.W * inner;
#endif
  if (live) {
#pragma unroll
    for (int r = 0; r < CELLS_H; ++r) {
      const int row = row0 + h * STRIDE_H + r;
#pragma unroll
      for (int x = 0; x < CELLS_W; ++x) {
        const int column = column0 + w * STRIDE_W + x;
        if (row >= top && row < bottom && column >= begin && column < end)
          to[(row - top) * pitch + (column - begin) * inner] = narrowed(sums[r][x]);
      }
    }
  }
#if FLUSH
  __syncthreads();
#if GAP
  for (int i = t; i < planes * slices * (int)p.by_slice.n; i += blockDim.x)
    ((uint4 *)out)[i] = ((const uint4 *)tile)[i + over(i, p.by_slice) * GAP];
  return;
#endif
  if (contiguous) return write_run(out, tile, planes * slices * rows * run);
  for (int q = t / 32; q < slices * rows; q += blockDim.x / 32) {
    const int slice = q / rows;
    Elements *line = out + ((i64)slice * p.H + q - slice * rows) * p.W * inner;
    for (int i = t % 32; i < run; i += 32) line[i] = tile[q * run + i];
  }
#endif
}
