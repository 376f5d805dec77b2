// Maxima of windows. A thread walks down a column of windows (columns.h).
//
//     COLUMNS  the most cells of a window on the w axis, where threads unroll them; 0: too many for that
//     WALK     how rows that several windows have in common are compared along w only once:
//              0  they are compared again for each window
//              1  the best cells of the last ROWS rows stay in registers; windows begin STRIDE rows apart
//              2  windows have too many rows for registers. The walk is cut into sections as long as a window.
//                 A window is the end of one section and the begin of the next; the best of each end stands in
//                 shared memory, the best of the begin in a register. So a row costs three comparisons,
//                 however long windows are
//
// Places of cells: row_place(d, h) + m · place_w for cell m of a window's row.
#include "columns.h"
#include "maximum.h"

#define UNROLLED (COLUMNS > 0 ? COLUMNS : 1)

extern "C" __global__ void __launch_bounds__(THREADS) maximum(const Parameters p) {
  const Column column = column_of(p);
  if (!column.live) return;
  const Span d = span_d(p, column.od), w = span_w(p, column.ow);
  const int pitch = p.W * p.inner, step = p.dilation_w * p.inner;
  const bool some = w.count > 0;  // of a window that has no cell along w, nothing is read
  const Element *from = p.x + column.from + (some ? w.first * p.inner : 0);
#if COLUMNS
  // A window with fewer cells takes its last one again.
  int offsets[UNROLLED];
#pragma unroll
  for (int m = 0; m < COLUMNS; ++m) offsets[m] = max(min(m, w.count - 1), 0) * step;
#endif

  // The best of row h of a slice, its place counted in cells of the row.
  auto row_best = [&](const Element *slice, int h) {
    const Element *row = slice + h * pitch;
#if COLUMNS
    Sum cells[UNROLLED];
#pragma unroll
    for (int m = 0; m < COLUMNS; ++m) cells[m] = widen(row[offsets[m]]);
    Best best = best_of(cells[0], 0);
#pragma unroll
    for (int m = 1; m < COLUMNS; ++m) take(best, cells[m], m);
#ifdef INDEX
    best.place = min(best.place, w.count - 1) * p.place_w;  // a NaN that was taken again
#endif
#else
    Best best = best_of(widen(row[0]), 0);
#pragma unroll 4
    for (int m = 1; m < w.count; ++m) take(best, widen(row[m * step]), m * p.place_w);
#endif
    return best;
  };
  i64 to = column.to;

#if WALK == 0
  for (int oh = column.oh0; oh < column.oh1; ++oh, to += p.columns) {
    const Span h = span_h(p, oh);
#if INDEX == 1
    int slice_place = 0;
#else
    int slice_place = (d.first * p.H + h.first) * p.W + w.first;
#endif
    Best best = best_of(LOWEST, slice_place);
    const Element *slice = from + (i64)d.first * p.H * pitch;
    for (int i = 0; i < d.count && some; ++i, slice += (i64)p.dilation_d * p.H * pitch, slice_place += p.place_d) {
      int place = slice_place;
#pragma unroll 2
      for (int j = 0; j < h.count; ++j, place += p.place_h)
        take(best, row_best(slice, h.first + j * p.dilation_h), place);
    }
    PUT(p, to, best);
  }
#else
  // Windows have one slice, and their rows are neighbours.
  const Element *slice = from + d.first * p.H * pitch;
  // The best of a row, which may be in the padding.
  auto enter = [&](int h) { return some && h >= 0 && h < p.H ? row_best(slice, h) : best_of(LOWEST, 0); };
  // The place of the first cell of row h, for a window whose first row is `top`; `top` may be in the padding.
  auto row_place = [&](int h, int top) {
#if INDEX == 1
    return (h - max(top, 0)) * p.place_h;
#else
    return (d.first * p.H + h) * p.W + w.first;
#endif
  };
#if WALK == 1
  int top = column.oh0 * STRIDE - p.padding;
  Best rows[ROWS];
#pragma unroll
  for (int j = 0; j < ROWS - STRIDE; ++j) rows[j] = enter(top + j);
  for (int oh = column.oh0; oh < column.oh1; ++oh, to += p.columns, top += STRIDE) {
#pragma unroll
    for (int j = ROWS - STRIDE; j < ROWS; ++j) rows[j] = enter(top + j);
    Best best = best_of(LOWEST, row_place(max(top, 0), top));
#pragma unroll
    for (int j = 0; j < ROWS; ++j) take(best, rows[j], row_place(top + j, top));
    PUT(p, to, best);
#pragma unroll
    for (int j = 0; j < ROWS - STRIDE; ++j) rows[j] = rows[j + STRIDE];
  }
#else
  SHARED(arena);
  Best *ends = (Best *)arena + threadIdx.x;  // of row j of a section at j · blockDim.x
  const int threads = blockDim.x, rows = p.rows, stride = p.stride;
  int oh = column.oh0, start = oh * stride - p.padding, top = start;
  for (int section = top; oh < column.oh1; section += rows) {
    // `start` is the first row of window oh, and lies in the section before this one.
    Best begin = best_of(LOWEST, 0);
    for (int j = 0; j < rows; ++j) {
      if (section > top && start == section - rows + j) {
        Best best = best_of(LOWEST, row_place(max(start, 0), start));
        take(best, ends[j * threads], row_place(0, start));
        take(best, begin, row_place(0, start));
        PUT(p, to, best);
        start += stride, to += p.columns;
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
