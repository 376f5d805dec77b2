// Maxima of windows. A thread walks down a column of windows (columns.h).
//
//     PAIRED   1: a thread owns two windows of a row, which share comparisons, too. Windows are STRIDE_W cells apart, and
//              have COLUMNS cells
//     COLUMNS  the most cells of a window on the w axis, where threads unroll them; 0: too many for that (columns.h)
//     WALK     how rows that several windows have in common are compared along w only once:
//              0  they are compared again for each window. ROWS is the most rows of a window, if threads unroll them:
//                 windows have one slice, and all have cells; 0: others
//              1  the best cells of rows stay in registers. A window has ROWS rows. If windows share rows, each begins
//                 STRIDE rows below the window before it, and two windows at a time share comparisons. If windows have
//                 SLICES > 1 slices, a row of all slices counts as one row
//              2  windows have too many rows for registers. The walk is cut into sections of as many rows as a window
//                 has. So a window consists of the last rows of one section and the first rows of the next section.
//                 Shared memory has, for each row of a section, the best cell from that row to the end of the section.
//                 A register has the best cell of the first rows of the next section. A row costs three comparisons,
//                 however many rows windows have
// In the walks 1 and 2 a place counts rows from row 0 of the plane, and cells from the first cell of the Reach.
#if SLICES > 1
#define PLACED  // the cells of one row of all slices come neither before nor after those of another row
#endif
#include "columns.h"
#include "maximum.h"

#define UNROLLED (COLUMNS > 0 ? COLUMNS : 1)

struct Bests {
  Best at[VECTOR];  // of each column of the thread
};

__device__ __forceinline__ Bests bests_of(const Cells &cells, int place) {
  Bests bests;
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) bests.at[v] = best_of(cells.at[v], place);
  return bests;
}
__device__ __forceinline__ void take(Bests &bests, const Cells &cells, int place) {
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) take(bests.at[v], cells.at[v], place);
}
__device__ __forceinline__ void take(Bests &bests, const Bests &later, int from) {
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) take(bests.at[v], later.at[v], from);
}

// Takes the best of rows that are below.
__device__ __forceinline__ void take_below(Bests &bests, const Bests &below) {
#if SLICES > 1
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) take_either(bests.at[v], below.at[v]);
#else
  take(bests, below, 0);
#endif
}

// Where the cells of a row that a thread reads begin, which may be outside of the row, and how many there are; and
// for each column, how many of them come before its window's first cell inside the row.
struct Reach {
  int first, count;
  int skip[VECTOR];
};

__device__ __forceinline__ Reach reach_of(const Parameters &p, int ow) {
  Reach found;
#if PAIRED
  found.first = ow * STRIDE_W - p.padding_w, found.count = COLUMNS + STRIDE_W;
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) found.skip[v] = v * STRIDE_W + max(-found.first - v * STRIDE_W, 0);
#else
  const Span w = span_w(p, ow);
  found.first = w.first, found.count = w.count;
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) found.skip[v] = 0;
#endif
  return found;
}

// The best of a row of the windows. Its place counts from the first cell of the reach.
template <bool aligned>
__device__ __forceinline__ Bests row_best(const Parameters &p, const Element *row, const Reach &reach) {
#if PAIRED
  Sum cells[COLUMNS + STRIDE_W];
#pragma unroll
  for (int r = 0; r < COLUMNS + STRIDE_W; ++r)
    cells[r] = !CLIPPED_W || (u32)(reach.first + r) < (u32)p.W ? widen(__ldg(row + r)) : LOWEST;
  Bests bests;
  bests.at[0] = best_of(cells[0], 0);
#if COLUMNS > STRIDE_W
  Best both = best_of(cells[STRIDE_W], STRIDE_W);
#pragma unroll
  for (int r = STRIDE_W + 1; r < COLUMNS; ++r) take(both, cells[r], r);
#pragma unroll
  for (int r = 1; r < STRIDE_W; ++r) take(bests.at[0], cells[r], r);
  take(bests.at[0], both, 0);
  bests.at[1] = both;
#pragma unroll
  for (int r = COLUMNS; r < COLUMNS + STRIDE_W; ++r) take(bests.at[1], cells[r], r);
#else
  bests.at[1] = best_of(cells[STRIDE_W], STRIDE_W);
#pragma unroll
  for (int r = 1; r < COLUMNS; ++r) {
    take(bests.at[0], cells[r], r);
    take(bests.at[1], cells[STRIDE_W + r], STRIDE_W + r);
  }
#endif
#elif COLUMNS
  Cells cells[UNROLLED];
#pragma unroll
  for (int m = 0; m < COLUMNS; ++m)
    cells[m] = cells_of<aligned>(p, row, m, !CLIPPED_W || m == 0 || m < reach.count, LOWEST_ELEMENT);
  Bests bests = bests_of(cells[0], 0);
#pragma unroll
  for (int m = 1; m < COLUMNS; ++m) take(bests, cells[m], m * p.place_w);
#else
  Bests bests = bests_of(all_cells(LOWEST), 0);
  each_batch<aligned>(p, row, reach.count, [&](const Cells(&cells)[BATCH], int begin, int count) {
#pragma unroll
    for (int m = 0; m < BATCH; ++m) take(bests, cells[m], (begin + min(m, count - 1)) * p.place_w);
  });
#endif
  return bests;
}

template <bool aligned>
__device__ __forceinline__ void walk(const Parameters &p, const Column &column) {
  const Span d = span_d(p, column.od);
  const Reach reach = reach_of(p, column.ow);
  const Element *from = p.x + column.from + (i64)reach.first * p.inner;
  Element *out = p.out + column.to;
  const int below = rows_apart(p) * p.columns;  // elements to the next result
#ifdef INDEX
  Index *places = p.places + column.to;
#endif
  auto put = [&](const Bests &bests) {
    Sum values[VECTOR];
    alignas(16) Element results[VECTOR];
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) values[v] = bests.at[v].value;
    narrow_all<VECTOR>(results, values);
    put_all<aligned>(out, results);
    out += below;
#ifdef INDEX
    alignas(16) Index found[VECTOR];
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) found[v] = (Index)bests.at[v].place;
    put_all<aligned>(places, found);
    places += below;
#endif
  };

#if WALK == 0
  for (int oh = column.oh0; oh < column.oh1; ++oh) {
    const Span h = span_h(p, oh);
#if INDEX == 1
    int slice = 0;
#else
    int slice = (d.first * p.H + h.first) * p.W + reach.first;
#endif
    Bests bests = bests_of(all_cells(LOWEST), slice);
#if ROWS
    // All rows are loaded before the first comparison. A window with fewer rows takes its last one again.
    Bests rows[ROWS];
#pragma unroll
    for (int j = 0; j < ROWS; ++j)
      rows[j] = row_best<aligned>(p, row_of(p, from, d.first, h.first + min(j, h.count - 1) * p.dilation_h), reach);
#pragma unroll
    for (int j = 0; j < ROWS; ++j) take(bests, rows[j], slice + min(j, h.count - 1) * p.place_h);
#else
    for (int i = 0; i < d.count && reach.count > 0; ++i, slice += p.place_d) {
      int place = slice;
#pragma unroll 2
      for (int j = 0; j < h.count; ++j, place += p.place_h) {
        const Element *row = row_of(p, from, d.first + i * p.dilation_d, h.first + j * p.dilation_h);
        take(bests, row_best<aligned>(p, row, reach), place);
      }
    }
#endif
    put(bests);
  }
#else
  // The rows of a window are neighbours. `top` is its first row, maybe in the padding.
  auto enter = [&](int h) {
#if WALK == 2
    if (CLIPPED_H && (u32)h >= (u32)p.H) return bests_of(all_cells(LOWEST), 0);
#endif
    const int inside = min(CLIPPED_H ? max(h, 0) : h, p.H - 1);
    Bests bests = row_best<aligned>(p, row_of(p, from, d.first, inside), reach);
    // A window with fewer slices takes its last one again.
#pragma unroll (SLICES * UNROLLED <= 16 ? SLICES : 1)
    for (int j = 1; j < SLICES; ++j) {
      const int i = min(j, d.count - 1);
      take(bests, row_best<aligned>(p, row_of(p, from, d.first + i * p.dilation_d, inside), reach), i * p.place_d);
    }
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
#if CLIPPED_H
      if ((u32)h >= (u32)p.H) bests.at[v].value = LOWEST;
#endif
#ifdef PLACED
      bests.at[v].place += h * p.place_h;
#endif
    }
    return bests;
  };
  auto put_window = [&](Bests bests, int top) {
#ifdef INDEX
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
      Best &best = bests.at[v];
      const int first = max(top, 0) * p.place_h + reach.skip[v];  // the place of the first cell in the plane
      if ((CLIPPED_H || PAIRED) && best.value == LOWEST) best.place = first;  // not of a cell in the padding
      best.place += INDEX == 1 ? -first : d.first * p.H * p.W + reach.first;
    }
#endif
    put(bests);
  };
  int top = column.oh0 * p.stride - p.padding;
#if WALK == 1
  // Of windows that share rows, row j of the second one is row j + STRIDE of the first one.
  constexpr int kShared = ROWS > STRIDE ? ROWS - STRIDE : 0;
  Bests rows[ROWS + STRIDE];
#pragma unroll
  for (int j = 0; j < kShared; ++j) rows[j] = enter(top + j);
#if ROWS > STRIDE
  for (int oh = column.oh0; oh < column.oh1; oh += 2, top += 2 * STRIDE) {
#pragma unroll
    for (int j = kShared; j < ROWS + STRIDE; ++j) rows[j] = enter(top + j);
    Bests both = rows[STRIDE], upper = rows[0];
#pragma unroll
    for (int j = STRIDE + 1; j < ROWS; ++j) take_below(both, rows[j]);
#pragma unroll
    for (int j = 1; j < STRIDE; ++j) take_below(upper, rows[j]);
    take_below(upper, both);
    put_window(upper, top);
    if (oh + 1 == column.oh1) return;
#pragma unroll
    for (int j = ROWS; j < ROWS + STRIDE; ++j) take_below(both, rows[j]);
    put_window(both, top + STRIDE);
#pragma unroll
    for (int j = 0; j < kShared; ++j) rows[j] = rows[j + 2 * STRIDE];
  }
#else
#if SPREAD
  const Element *first = from;
#endif
#pragma unroll 2
  for (int oh = column.oh0; oh < column.oh1; oh += rows_apart(p), top += p.stride) {
#if SPREAD
    const u32 plane = over((u32)oh, p.by_ho);
    from = first + (i64)plane * p.plane_elements;
    top = (oh - (int)plane * p.Ho) * p.stride - p.padding;
#endif
#pragma unroll
    for (int j = 0; j < ROWS; ++j) rows[j] = enter(top + j);
    Bests bests = rows[0];
#pragma unroll
    for (int j = 1; j < ROWS; ++j) take_below(bests, rows[j]);
    put_window(bests, top);
  }
#endif
#else
  SHARED(arena);
  Bests *ends = (Bests *)arena + threadIdx.x;  // of row j of a section at j · blockDim.x
  const int threads = blockDim.x, rows = p.rows, begin_of_all = top;
  int oh = column.oh0;
  for (int section = top; oh < column.oh1; section += rows) {
    // Window oh begins at `top`, which lies in the section before this one.
    Bests begin = bests_of(all_cells(LOWEST), 0);
    for (int j = 0; j < rows; ++j) {
      if (section > begin_of_all && top == section - rows + j) {
        Bests bests = ends[j * threads];
        take(bests, begin, 0);
        put_window(bests, top);
        top += p.stride;
        if (++oh == column.oh1) return;
      }
      const Bests row = enter(section + j);
      take(begin, row, 0);
      ends[j * threads] = row;
    }
    for (int j = rows - 2; j >= 0; --j) {
      Bests bests = ends[j * threads];
      take(bests, ends[(j + 1) * threads], 0);
      ends[j * threads] = bests;
    }
  }
#endif
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) maximum_columns(const Parameters p) {
  const Column column = column_of(p);
  if (!column.live) return;
#if VECTOR > 1
#ifdef INDEX
  const bool aligned = is_aligned(p.x) && is_aligned(p.out) && is_aligned(p.places);
#else
  const bool aligned = is_aligned(p.x) && is_aligned(p.out);
#endif
  if (!aligned) return walk<false>(p, column);
#endif
  walk<true>(p, column);
}
