// The gradient of roi_pool: each index names the cell that a bin's gradient is added to.
//
// A block computes a tile of a plane's cells for some channels. It lists the regions whose indices reach the tile, in
// ascending order. Then a warp adds the gradients of a channel, 32 bins at a time, in order where they meet in a cell.
#include "regions.h"

#define AHEAD 4  // groups of 32 bins that are loaded at once

extern "C" __global__ void __launch_bounds__(256) region_scatter(const Parameters p) {
  SHARED(memory);
  __shared__ int list[256], counts[8];
  Sum *const sums = (Sum *)memory;
  const int side = p.side, cells = side * side;  // of the tile
  u32 rest = blockIdx.x;
  const int tile_x = rest % p.tiles_x * side;
  rest /= p.tiles_x;
  const int tile_y = rest % p.tiles_y * side;
  rest /= p.tiles_y;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int channel0 = rest % p.groups * warps, channel = channel0 + warp, image = rest / p.groups;
  const int bottom = min(tile_y + side, p.H) - 1, right = min(tile_x + side, p.W) - 1;
  const int bins = p.PH * p.PW, step = p.inner ? p.channels : 1, parts = (bins + 31) / 32;
  Sum *const mine = sums + warp * cells;

  for (int i = threadIdx.x; i < warps * cells; i += blockDim.x) sums[i] = 0;
  wait_for_launch_before();
  for (int first = 0; first < p.K; first += blockDim.x) {
    const int regions = listed(list, counts, first, p.K, [&](int k) {
      const int *reach = p.reaches + (i64)k * 5;
      return reach[0] == image && reach[1] <= bottom && reach[2] >= tile_y && reach[3] <= right && reach[4] >= tile_x;
    });
    for (int begin = 0; begin < regions * parts && channel < p.channels; begin += AHEAD) {
      Index indices[AHEAD];
      Element grads[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; ++u) {
        const int nth = (begin + u) / parts, bin = (begin + u - nth * parts) * 32 + lane;
        indices[u] = -1, grads[u] = 0;
        if (nth >= regions || bin >= bins) continue;
        const i64 at = (i64)list[nth] * p.channels * bins + (p.inner ? channel : channel * bins) + (i64)bin * step;
        indices[u] = p.indices[at], grads[u] = p.grad[at];
      }
#pragma unroll
      for (int u = 0; u < AHEAD; ++u) {
        int local = -1;
        if (indices[u] >= 0 && indices[u] < (Index)p.H * p.W) {
          const int row = over((u32)indices[u], p.by_W), column = (int)indices[u] - row * p.W;
          if (row >= tile_y && row <= bottom && column >= tile_x && column <= right)
            local = (row - tile_y) * side + column - tile_x;
        }
        if (__any_sync(ALL, local >= 0)) add_in_order(mine, local, widen(grads[u]), lane);
      }
    }
    __syncthreads();  // before the list is overwritten
  }
  __syncthreads();

  const int count = min(warps, p.channels - channel0);
  const i64 plane = (i64)p.H * p.W;
  for (int i = threadIdx.x; i < count * cells; i += blockDim.x) {
    const int cell = p.inner ? i / count : i % cells, c = p.inner ? i % count : i / cells;
    const int y = tile_y + cell / side, x = tile_x + cell % side;
    if (y > bottom || x > right) continue;
    const i64 at = (i64)y * p.W + x, to = channel0 + c;
    p.out[p.inner ? (image * plane + at) * p.channels + to : ((i64)image * p.channels + to) * plane + at] =
        narrow(sums[c * cells + cell]);
  }
}
