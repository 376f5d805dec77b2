// Averages of windows. A thread walks down a column of windows (columns.h).
//
//     out = (((0 + x[1st cell]) + x[2nd]) + …) / divisor       cells in ascending order of (d, h, w)
//
// The order of the sum is fixed, so windows share no sums; they share what is read. A thread computes WINDOWS
// windows below each other at a time: it reads each row once and adds the row to all sums that hold it. A cell that
// a window does not have counts as +0, which changes no sum, as no sum that begins with +0 becomes -0.
//
//     COLUMNS  the most cells of a window on the w axis, where threads unroll them; 0: too many for that (columns.h)
//     ROWS     the rows of a window, STRIDE rows apart, where threads unroll them; 0: windows differ or are long
//     PAIRED   1: a thread owns two windows of a row, STRIDE_W cells apart, with COLUMNS cells each
//     DEEP     0: no window has more than one slice
//     SLICES   how many slices threads unroll, where these have few cells
#include "columns.h"
#include "quotients.h"

#define UNROLLED (COLUMNS > 0 ? COLUMNS : 1)

// Adds the cells to the sums; the columns of a thread have one sum each.
__device__ __forceinline__ void add(Cells &sums, const Cells &cells) {
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) sums.at[v] += cells.at[v];
}

template <bool aligned>
__device__ __forceinline__ void walk(const Parameters &p, const Column &column) {
  const Span d = span_d(p, column.od);
#if PAIRED
  const Span w = {column.ow * STRIDE_W - p.padding_w, COLUMNS + STRIDE_W};  // of both windows, maybe in the padding
#else
  const Span w = span_w(p, column.ow);
#endif
  const Element *first = p.x + column.from + (i64)w.first * p.inner, *from = first;
  Element *out = p.out + column.to;
  // The compiler would load these again after each store.
  const int by_d = divisor_d(p, column.od);
  const int by_w = divisor_w(p, column.ow), by_next = PAIRED ? divisor_w(p, column.ow + 1) : by_w;

  for (int nth = column.oh0; nth < column.oh1; nth += WINDOWS * rows_apart(p)) {
#if SPREAD  // then WINDOWS is 1
    const u32 plane = over((u32)nth, p.by_ho);
    const int oh = nth - (int)plane * p.Ho, end_of_rows = p.Ho;
    from = first + (i64)plane * p.plane_elements;
#else
    const int oh = nth, end_of_rows = column.oh1;
#endif
    Cells sums[WINDOWS];
#pragma unroll
    for (int v = 0; v < WINDOWS; ++v) sums[v] = all_cells(0);
#if ROWS
    const int top = oh * STRIDE - p.padding;
#pragma unroll (SLICES)
    for (int i = d.first; i < d.first + (DEEP ? d.count : 1); ++i) {
      // A last group of fewer windows adds rows for windows that it does not have; those rows may not exist.
#pragma unroll
      for (int r = 0; r < (WINDOWS - 1) * STRIDE + ROWS; ++r) {
        const int h = top + r;
        const bool inside = (!CLIPPED_H && WINDOWS == 1) || (u32)h < (u32)p.H;
        const Element *row = row_of(p, from, i, h);
        Cells cells[UNROLLED];
#if PAIRED
        Sum both[COLUMNS + STRIDE_W];
#pragma unroll
        for (int m = 0; m < COLUMNS + STRIDE_W; ++m)
          both[m] = inside && (!CLIPPED_W || (u32)(w.first + m) < (u32)p.W) ? widen(__ldg(row + m)) : (Sum)0;
#pragma unroll
        for (int m = 0; m < COLUMNS; ++m) cells[m].at[0] = both[m], cells[m].at[1] = both[m + STRIDE_W];
#else
#pragma unroll
        for (int m = 0; m < COLUMNS; ++m)
          cells[m] = cells_of<aligned>(p, row, m, inside && (!CLIPPED_W || m < w.count));
#endif
#pragma unroll
        for (int v = 0; v < WINDOWS; ++v)
          if (r >= v * STRIDE && r < v * STRIDE + ROWS)
#pragma unroll
            for (int m = 0; m < COLUMNS; ++m) add(sums[v], cells[m]);
      }
    }
#else
    Span h[WINDOWS];
    int end = 0;
#pragma unroll
    for (int v = 0; v < WINDOWS; ++v) {
      h[v].first = h[v].count = 0;
      if (oh + v < end_of_rows) h[v] = span_h(p, oh + v), end = h[v].first + h[v].count;
    }
#pragma unroll 1
    for (int i = d.first; i < d.first + (DEEP ? d.count : 1); ++i) {
      for (int r = h[0].first; r < end; ++r) {
        const Element *row = row_of(p, from, i, r);
        bool holds[WINDOWS];
#pragma unroll
        for (int v = 0; v < WINDOWS; ++v) holds[v] = WINDOWS == 1 || (u32)(r - h[v].first) < (u32)h[v].count;
#if COLUMNS
        Cells cells[UNROLLED];
#pragma unroll
        for (int m = 0; m < COLUMNS; ++m) cells[m] = cells_of<aligned>(p, row, m, !CLIPPED_W || m < w.count);
#pragma unroll
        for (int v = 0; v < WINDOWS; ++v)
          if (holds[v])
#pragma unroll
            for (int m = 0; m < COLUMNS; ++m) add(sums[v], cells[m]);
#else
        each_batch<aligned>(p, row, w.count, [&](const Cells(&cells)[BATCH], int, int count) {
#pragma unroll
          for (int v = 0; v < WINDOWS; ++v)
            if (holds[v])
#pragma unroll
              for (int m = 0; m < BATCH; ++m) add(sums[v], m < count ? cells[m] : all_cells(0));
        });
#endif
      }
    }
#endif
#pragma unroll
    for (int v = 0; v < WINDOWS; ++v, out += rows_apart(p) * p.columns) {
      if (oh + v == end_of_rows) return;
      const int by_h = divisor_h(p, oh + v);
      const Divisors by = divisors_of(p, by_d, by_h, by_w), next = PAIRED ? divisors_of(p, by_d, by_h, by_next) : by;
      Sum quotients[VECTOR];
#pragma unroll
      for (int c = 0; c < VECTOR; ++c) quotients[c] = divided(sums[v].at[c], PAIRED && c == 1 ? next : by);
      alignas(16) Element results[VECTOR];
      narrow_all<VECTOR>(results, quotients);
      put_all<aligned>(out, results);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) average_columns(const Parameters p) {
  const Column column = column_of(p);
  if (!column.live) return;
#if VECTOR > 1
  if (!is_aligned(p.x) || !is_aligned(p.out)) return walk<false>(p, column);
#endif
  walk<true>(p, column);
}
