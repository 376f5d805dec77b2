// Averages of windows in planes. Threads read windows from shared memory (tile.h), and add cells in ascending order
// (average.cu).
#define NONE ((Sum)0)
#include "tile.h"
#include "quotients.h"

extern "C" __global__ void __launch_bounds__(THREADS) average_staged(const Parameters p) {
  SHARED(arena);
  const Tile tile = tile_of(p, arena);
  each_column(p, tile, [&](int ow, int first, int step) {
    const Span w = cells_w(p, tile.ow + ow);
    each_row(p, tile, first, step, [&](int plane, int od, int oh) {
      const Span d = cells_d(p, tile.od + od), h = cells_h(p, tile.oh + oh);
      const int top = (plane * p.cells_d + d.first - tile.d.first) * p.cells_h + h.first - tile.h.first;
      Sum sum = 0;
#pragma unroll 1
      for (int i = 0; i < d.count; ++i) {
#pragma unroll 2
        for (int j = 0; j < h.count; ++j) {
          const int at = row_at(p, tile, top + i * p.cells_h + j) + w.first - tile.w.first;
          each_batch(tile, at, w.count, [&](const Sum(&cells)[BATCH], int) {
#pragma unroll
            for (int k = 0; k < BATCH; ++k) sum += cells[k];
          });
        }
      }
      p.out[result_of(p, tile, plane, od, oh, ow)] = divided(p, sum, tile.od + od, tile.oh + oh, tile.ow + ow);
    });
  });
}
