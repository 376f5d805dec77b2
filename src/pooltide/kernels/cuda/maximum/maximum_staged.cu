// Maxima of windows in planes that overlap little or have short rows. Threads read windows from shared memory (tile.h).
//
//     SEARCHED  1: rows are compared without places, and then the best cell is searched in the best row. That takes
//               fewer instructions if windows have several rows. It also finds which zero comes first, -0 or +0
#include "maximum.h"
#define NONE LOWEST
#include "tile.h"

#if SEARCHED
// The best of a window from its rows, or parts of rows.
__device__ __forceinline__ Best best_of_window(const Parameters &p, const Tile &tile, const Window &window, int first) {
  Sum value = LOWEST;
  int place = first, at = window.at, left = window.w.count;  // of the row that holds the value
  each_batch(p, tile, window, [&](const Sum(&cells)[BATCH], int row, int i, int j, int m) {
    Sum largest = cells[0];
#pragma unroll
    for (int k = 1; k < BATCH; ++k) largest = larger(largest, cells[k]);
    if (largest > value || largest != largest) {
      value = largest, at = row, left = window.w.count - m;
      place = first + i * p.place_d + j * p.place_h + m;
    }
  });
  Sum cells[BATCH];
  load_cells<PADDED>(tile.bytes, at, left, true, cells);
  Best best = best_of(cells[0], place);
#pragma unroll
  for (int k = 1; k < BATCH; ++k) take(best, cells[k], place + k);
  return best;
}
#else
__device__ __forceinline__ Best best_of_window(const Parameters &p, const Tile &tile, const Window &window, int first) {
  Best best = best_of(LOWEST, first);
  each_batch(p, tile, window, [&](const Sum(&cells)[BATCH], int, int i, int j, int m) {
    Best row = best_of(cells[0], 0);
#pragma unroll
    for (int k = 1; k < BATCH; ++k) take(row, cells[k], k);
    take(best, row, first + i * p.place_d + j * p.place_h + m);
  });
  return best;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) maximum_staged(const Parameters p) {
  SHARED(arena);
  const Tile tile = tile_of(p, arena);
  for (int q = (int)threadIdx.x; q < tile.windows; q += THREADS) {
    const Window window = window_of(p, tile, q);
#if defined(INDEX) && INDEX == 1
    const int first = 0;
#else
    const int first = window.first;
#endif
    const Best best = best_of_window(p, tile, window, first);
    p.out[tile.to + q] = narrow(best.value);
#ifdef INDEX
    p.places[tile.to + q] = (Index)best.place;
#endif
  }
}
