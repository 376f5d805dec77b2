// Averages of windows in planes that overlap little or have short rows. Threads read windows from shared memory (tile.h),
// and add cells in ascending order (average_columns.cu).
#define NONE ((Sum)0)
#include "tile.h"
#include "quotients.h"

extern "C" __global__ void __launch_bounds__(THREADS) average_staged(const Parameters p) {
  SHARED(arena);
  const Tile tile = tile_of(p, arena);
  for (int q = (int)threadIdx.x; q < tile.windows; q += THREADS) {
    const Window window = window_of(p, tile, q);
    Sum sum = 0;
    each_batch(p, tile, window, [&](const Sum(&cells)[BATCH], int, int, int, int) {
#pragma unroll
      for (int k = 0; k < BATCH; ++k) sum += cells[k];
    });
    p.out[tile.to + q] = divided(p, sum, window.od, window.oh, window.ow);
  }
}
