// Before a gradient of regions: which cells each region reaches, in five numbers of `reaches`: its image, then first and
// last row and column. A warp has a region. After the last region comes what region_gradient writes to for `repair`.
//
// For roi_pool every bin reaches a cell, as its indices must be read: that next to its cells if it has none.
#include "regions.h"

#if POOL == 1
__device__ __forceinline__ Reach reach(const Line &line, int bins, int size) {
  const int first = min(cells_of(line, 0, size).first, size - 1);
  return {first, max(cells_of(line, bins - 1, size).last, first)};
}
#else
__device__ __forceinline__ Reach reach(const Line &line, int bins, int size) { return reach_of(line, bins, size); }
#endif

extern "C" __global__ void __launch_bounds__(256) region_prepare(const Parameters p) {
  let_next_launch_start();
  const int k = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (k == 0 && lane == 0) p.reaches[(i64)p.K * 5] = 0;
  if (k >= p.K) return;
  const Region region = region_of(p, k);
  if (lane == 0) {
    const Reach rows = reach(region.y, p.PH, p.H), columns = reach(region.x, p.PW, p.W);
    int *to = p.reaches + (i64)k * 5;
    to[0] = region.image;
    to[1] = rows.first, to[2] = rows.last;
    to[3] = columns.first, to[4] = columns.last;
    if (region.image == NO_IMAGE) report_fault(p.faults, k);
  }
#if POOL == 1
  // The tiles check the indices of other regions.
  const int size = p.channels * p.PH * p.PW;
  for (int e = lane; e < size && region.image == NO_IMAGE; e += 32) {
    const Index index = p.indices[(i64)k * size + e];
    const int place = p.inner ? e % p.channels * (p.PH * p.PW) + e / p.channels : e;
    if (index < -1 || index >= (Index)p.H * p.W) report_fault(p.faults, p.K + (i64)k * size + place);
  }
#endif
}
