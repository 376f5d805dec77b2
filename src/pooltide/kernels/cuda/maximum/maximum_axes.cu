// Maxima of windows in planes, one axis after the other, in shared memory (boxes.h):
//
//     rows[d, h, ow]     the largest cell of a row of a window, in each row of the tile
//     slices[d, oh, ow]  the largest of the rows of a window, in each slice of the tile
//
// So a window of k × k × k cells takes 3 · k comparisons with stride 1, as windows share their rows and slices. Values
// have no places.
// These are searched at the end: the best slice of a window, the best row of that slice, the best cell of that row. That
// also finds which zero comes first, -0 or +0.
//
//     SLICES_FIRST  0: windows have one slice, and there is no array of slices
#include "maximum.h"
#define NONE LOWEST
#include "boxes.h"

__device__ __forceinline__ Element largest_of(const Element *values, int count, int step) {
  Sum best = widen(values[0]);
#pragma unroll 4
  for (int i = 1; i < count; ++i) best = larger(best, widen(values[i * step]));
  return narrow(best);
}

__device__ __forceinline__ void compare_rows(const Parameters &p, const Tile &tile, Element *rows) {
  const int count = ((tile.planes - 1) * p.cells_d + tile.d.count) * p.cells_h;
  each_column(p, tile, [&](int ow, int first, int step) {
    const Span w = cells_w(p, tile.ow + ow);
    for (int row = first; row < count; row += step) {
      Sum best = LOWEST;
      each_batch(tile, row_at(p, tile, row) + w.first - tile.w.first, w.count, [&](const Sum(&cells)[BATCH], int) {
#pragma unroll
        for (int k = 0; k < BATCH; ++k) best = larger(best, cells[k]);
      });
      rows[row * p.box_w + ow] = narrow(best);
    }
  });
  __syncthreads();
}

__device__ __forceinline__ void compare_slices(const Parameters &p, const Tile &tile, const Element *rows,
                                               Element *slices) {
  const int count = ((tile.planes - 1) * p.cells_d + tile.d.count) * p.box_h;
  each_column(p, tile, [&](int ow, int first, int step) {
    for (int nth = first; nth < count; nth += step) {
      const int slice = (int)over((u32)nth, p.by_box_h), oh = nth - slice * p.box_h;
      if (oh >= tile.windows_h) continue;
      const Span h = cells_h(p, tile.oh + oh);
      const int top = slice * p.cells_h + h.first - tile.h.first;
      slices[nth * p.box_w + ow] = largest_of(rows + top * p.box_w + ow, h.count, p.box_w);
    }
  });
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS) maximum_axes(const Parameters p) {
  SHARED(arena);
  const Tile tile = tile_of(p, arena);
  Element *rows = (Element *)(arena + p.rows_from), *slices = (Element *)(arena + p.slices_from);
  compare_rows(p, tile, rows);
  if (SLICES_FIRST) compare_slices(p, tile, rows, slices);
  each_column(p, tile, [&](int ow, int first, int step) {
    const Span w = cells_w(p, tile.ow + ow);
    each_row(p, tile, first, step, [&](int plane, int od, int oh) {
      const Span d = cells_d(p, tile.od + od), h = cells_h(p, tile.oh + oh);
      const int slice = plane * p.cells_d + d.first - tile.d.first;
      int i = 0;
      Sum largest;  // of the slice or row that is searched
      if (SLICES_FIRST)
        i = best_number(slices + (slice * p.box_h + oh) * p.box_w + ow, d.count, p.box_h * p.box_w, largest);
      const int top = (slice + i) * p.cells_h + h.first - tile.h.first;
      const int j = best_number(rows + top * p.box_w + ow, h.count, p.box_w, largest);
#if defined(INDEX) && INDEX == 1
      const int corner = 0;
#else
      const int corner = (d.first * p.H + h.first) * p.W + w.first;
#endif
      const int place = corner + i * p.place_d + j * p.place_h;
      Best best = best_of(LOWEST, place);
      each_batch(tile, row_at(p, tile, top + j) + w.first - tile.w.first, w.count,
                 [&](const Sum(&cells)[BATCH], int m) {
#pragma unroll
                   for (int k = 0; k < BATCH; ++k) take(best, cells[k], place + m + k);
                 });
      const i64 to = result_of(p, tile, plane, od, oh, ow);
      p.out[to] = narrow(best.value);
#ifdef INDEX
      p.places[to] = (Index)best.place;
#endif
    });
  });
}
