// Maxima of windows. A thread walks down a column of windows (columns.h).
//
//     COLUMNS  the most cells of a window on the w axis, where threads unroll them; 0: too many for that
//     WALK     how rows that several windows have in common are compared along w only once:
//              0  they are compared again for each window
//              1  the best cells of the last ROWS rows stay in registers; KEPT of them are rows of the next window
//              2  windows have too many rows for registers. The walk is cut into sections as long as a window.
//                 A window is the end of one section and the begin of the next; the best of each end stands in
//                 shared memory, the best of the begin in a register. So a row costs three comparisons,
//                 however long windows are
#include "columns.h"
#include "maximum.h"

#define UNROLLED (COLUMNS > 0 ? COLUMNS : 1)

// The best of a row of a window with `count` cells. Its place counts from the window's first cell in the row.
__device__ __forceinline__ Best row_best(const Parameters &p, const Element *row, int count) {
#if COLUMNS
  Sum cells[UNROLLED];
#pragma unroll
  for (int m = 0; m < COLUMNS; ++m) cells[m] = !CLIPPED_W || m == 0 || m < count ? cell_of(p, row, m) : LOWEST;
  Best best = best_of(cells[0], 0);
#pragma unroll
  for (int m = 1; m < COLUMNS; ++m) take(best, cells[m], m * p.place_w);
#else
  Best best = best_of(cell_of(p, row, 0), 0);
#pragma unroll 8
  for (int m = 1; m < count; ++m) take(best, cell_of(p, row, m), m * p.place_w);
#endif
  return best;
}

extern "C" __global__ void __launch_bounds__(THREADS) maximum(const Parameters p) {
  const Column column = column_of(p);
  if (!column.live) return;
  const Span d = span_d(p, column.od), w = span_w(p, column.ow);
  const Element *from = p.x + column.from + (w.count > 0 ? (i64)w.first * p.inner : 0);
  Element *out = p.out + column.to;
#ifdef INDEX
  Index *places = p.places + column.to;
#endif
  auto put = [&](const Best &best) {
    *out = narrow(best.value);
    out += p.columns;
#ifdef INDEX
    *places = (Index)best.place;
    places += p.columns;
#endif
  };

#if WALK == 0
  for (int oh = column.oh0; oh < column.oh1; ++oh) {
    const Span h = span_h(p, oh);
#if INDEX == 1
    int slice = 0;
#else
    int slice = (d.first * p.H + h.first) * p.W + w.first;
#endif
    Best best = best_of(LOWEST, slice);
    for (int i = 0; i < d.count && w.count > 0; ++i, slice += p.place_d) {
      int place = slice;
#pragma unroll 2
      for (int j = 0; j < h.count; ++j, place += p.place_h) {
        const Element *row = row_of(p, from, d.first + i * p.dilation_d, h.first + j * p.dilation_h);
        take(best, row_best(p, row, w.count), place);
      }
    }
    put(best);
  }
#else
  // Windows have one slice, and their rows are neighbours. `top` is a window's first row, maybe in the padding.
  auto enter = [&](int h) {
#if CLIPPED_H
    Best best = row_best(p, row_of(p, from, d.first, min(max(h, 0), p.H - 1)), w.count);
    if ((u32)h >= (u32)p.H) best.value = LOWEST;
    return best;
#else
    return row_best(p, row_of(p, from, d.first, h), w.count);
#endif
  };
  // The place of the first cell of row h.
  auto row_place = [&](int h, int top) {
#if INDEX == 1
    return (h - max(top, 0)) * p.place_h;
#else
    return (d.first * p.H + h) * p.W + w.first;
#endif
  };
  int top = column.oh0 * p.stride - p.padding;
#if WALK == 1
  Best rows[ROWS];
#pragma unroll
  for (int j = 0; j < KEPT; ++j) rows[j] = enter(top + j);
#pragma unroll 2
  for (int oh = column.oh0; oh < column.oh1; ++oh, top += p.stride) {
#pragma unroll
    for (int j = KEPT; j < ROWS; ++j) rows[j] = enter(top + j);
    Best best = best_of(LOWEST, row_place(max(top, 0), top));
#if !CLIPPED_H
    best = rows[0];  // its place counts from row 0 of the window, and so does the first cell's
#ifdef INDEX
    best.place += row_place(top, top);
#endif
#endif
#pragma unroll
    for (int j = !CLIPPED_H; j < ROWS; ++j) take(best, rows[j], row_place(top + j, top));
    put(best);
#pragma unroll
    for (int j = 0; j < KEPT; ++j) rows[j] = rows[j + ROWS - KEPT];
  }
#else
  SHARED(arena);
  Best *ends = (Best *)arena + threadIdx.x;  // of row j of a section at j · blockDim.x
  const int threads = blockDim.x, rows = p.rows, begin_of_all = top;
  int oh = column.oh0;
  for (int section = top; oh < column.oh1; section += rows) {
    // Window oh begins at `top`, which lies in the section before this one.
    Best begin = best_of(LOWEST, 0);
    for (int j = 0; j < rows; ++j) {
      if (section > begin_of_all && top == section - rows + j) {
        Best best = best_of(LOWEST, row_place(max(top, 0), top));
        take(best, ends[j * threads], row_place(0, top));
        take(best, begin, row_place(0, top));
        put(best);
        top += p.stride;
        if (++oh == column.oh1) return;
      }
      Best row = enter(section + j);
#ifdef INDEX
      row.place += (section + j) * p.place_h;
#endif
      take(begin, row, 0);
      ends[j * threads] = row;
    }
    for (int j = rows - 2; j >= 0; --j) {
      Best best = ends[j * threads];
      take(best, ends[(j + 1) * threads], 0);
      ends[j * threads] = best;
    }
  }
#endif
#endif
}
