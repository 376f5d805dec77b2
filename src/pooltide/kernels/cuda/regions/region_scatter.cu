// The gradient of roi_pool: each index names the cell that a bin's gradient is added to.
//
// A block computes a tile of a plane's cells for some channels. It lists the regions whose indices reach the tile, in
// ascending order. Then a warp adds the gradients of a channel, 32 bins at a time, in order where they meet in a cell.
#include "regions.h"

extern "C" __global__ void __launch_bounds__(256) region_scatter(const Parameters p) {
  SHARED(memory);
  __shared__ int list[256], counts[8];
  Sum *const sums = (Sum *)memory;
  u32 rest = blockIdx.x;
  const int tile_x = rest % p.tiles_x * TILE_W;
  rest /= p.tiles_x;
  const int tile_y = rest % p.tiles_y * TILE_H;
  rest /= p.tiles_y;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, channels_at_once = blockDim.x / 32;
  const int channel0 = rest % p.groups * channels_at_once, channel = channel0 + warp, image = rest / p.groups;
  const int bottom = min(tile_y + TILE_H, p.H) - 1, right = min(tile_x + TILE_W, p.W) - 1;
  const int bins = p.PH * p.PW, step = p.inner ? p.channels : 1;
  Sum *const mine = sums + warp * TILE_H * TILE_W;

  for (int i = threadIdx.x; i < channels_at_once * TILE_H * TILE_W; i += blockDim.x) sums[i] = 0;
  wait_for_launch_before();
  for (int first = 0; first < p.K; first += blockDim.x) {
    const int regions = listed(list, counts, first, p.K, [&](int k) {
      const int *reach = p.reaches + (i64)k * 5;
      return reach[0] == image && reach[1] <= bottom && reach[2] >= tile_y && reach[3] <= right && reach[4] >= tile_x;
    });
    for (int nth = 0; nth < regions && channel < p.channels; ++nth) {
      const i64 begin = (i64)list[nth] * p.channels * bins + (p.inner ? channel : channel * bins);
      for (int at = 0; at < bins; at += 32) {
        const i64 element = begin + (i64)(at + lane) * step;
        const Index index = at + lane < bins ? p.indices[element] : (Index)-1;
        int local = -1;
        if (index >= 0 && index < (Index)p.H * p.W) {
          const int row = over((u32)index, p.by_W), column = (int)index - row * p.W;
          if (row >= tile_y && row <= bottom && column >= tile_x && column <= right)
            local = (row - tile_y) * TILE_W + column - tile_x;
        }
        if (!__any_sync(ALL, local >= 0)) continue;
        add_in_order(mine, local, local >= 0 ? widen(p.grad[element]) : (Sum)0, lane);
      }
    }
    __syncthreads();  // before the list is overwritten
  }
  __syncthreads();

  const int count = min(channels_at_once, p.channels - channel0);
  for (int i = threadIdx.x; i < count * TILE_H * TILE_W; i += blockDim.x) {
    const int cell = p.inner ? i / count : i % (TILE_H * TILE_W), c = p.inner ? i % count : i / (TILE_H * TILE_W);
    const int y = tile_y + cell / TILE_W, x = tile_x + cell % TILE_W;
    if (y > bottom || x > right) continue;
    const i64 plane = (i64)p.H * p.W, at = (i64)y * p.W + x;
    p.out[p.inner ? (image * plane + at) * p.channels + channel0 + c : ((i64)image * p.channels + channel0 + c) * plane + at] =
        narrow(sums[c * TILE_H * TILE_W + cell]);
  }
}
