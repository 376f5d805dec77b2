// Maxima of windows. A thread walks down a column of windows (columns.h).
//
//     COLUMNS  the most cells of a window on the w axis, where threads unroll them; 0: too many for that
//     WALK     how rows that several windows have in common are compared along w only once:
//              0  they are compared again for each window
//              1  the best cells of rows stay in registers. A window has ROWS rows, and begins STRIDE rows below the
//                 last one; two windows at a time share the comparisons of the rows that both have
//              2  windows have too many rows for registers. The walk is cut into sections as long as a window.
//                 A window is the end of one section and the begin of the next; the best of each end stands in
//                 shared memory, the best of the begin in a register. So a row costs three comparisons,
//                 however long windows are
// In the walks 1 and 2 the place of a cell counts from row 0 of the plane, and from the window's first cell in the row.
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
    Best best = row_best(p, row_of(p, from, d.first, min(CLIPPED_H ? max(h, 0) : h, p.H - 1)), w.count);
#if CLIPPED_H
    if ((u32)h >= (u32)p.H) best.value = LOWEST;
#endif
#ifdef INDEX
    best.place += h * p.place_h;
#endif
    return best;
  };
  auto put_window = [&](Best best, int top) {
    const int first = max(top, 0) * p.place_h;  // the place of the first cell in the plane
#if INDEX == 1
    best.place = CLIPPED_H && best.value == LOWEST ? 0 : best.place - first;
#elif defined(INDEX)
    best.place = (CLIPPED_H && best.value == LOWEST ? first : best.place) + d.first * p.H * p.W + w.first;
#endif
    put(best);
  };
  int top = column.oh0 * p.stride - p.padding;
#if WALK == 1
  // Of windows that share rows, row j of the second one is row j + STRIDE of the first one.
  constexpr int kShared = ROWS > STRIDE ? ROWS - STRIDE : 0;
  Best rows[ROWS + STRIDE];
#pragma unroll
  for (int j = 0; j < kShared; ++j) rows[j] = enter(top + j);
#if ROWS > STRIDE
  for (int oh = column.oh0; oh < column.oh1; oh += 2, top += 2 * STRIDE) {
#pragma unroll
    for (int j = kShared; j < ROWS + STRIDE; ++j) rows[j] = enter(top + j);
    Best both = rows[STRIDE], upper = rows[0];
#pragma unroll
    for (int j = STRIDE + 1; j < ROWS; ++j) take(both, rows[j], 0);
#pragma unroll
    for (int j = 1; j < STRIDE; ++j) take(upper, rows[j], 0);
    take(upper, both, 0);
    put_window(upper, top);
    if (oh + 1 == column.oh1) return;
#pragma unroll
    for (int j = ROWS; j < ROWS + STRIDE; ++j) take(both, rows[j], 0);
    put_window(both, top + STRIDE);
#pragma unroll
    for (int j = 0; j < kShared; ++j) rows[j] = rows[j + 2 * STRIDE];
  }
#else
#pragma unroll 2
  for (int oh = column.oh0; oh < column.oh1; ++oh, top += p.stride) {
#pragma unroll
    for (int j = 0; j < ROWS; ++j) rows[j] = enter(top + j);
    Best best = rows[0];
#pragma unroll
    for (int j = 1; j < ROWS; ++j) take(best, rows[j], 0);
    put_window(best, top);
  }
#endif
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
        Best best = ends[j * threads];
        take(best, begin, 0);
        put_window(best, top);
        top += p.stride;
        if (++oh == column.oh1) return;
      }
      const Best row = enter(section + j);
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
