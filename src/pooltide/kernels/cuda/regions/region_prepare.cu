// Before a gradient of regions: which cells each region reaches, in five numbers of `reaches`: its image, then first and
// last row and column. After the last region comes a number for region_tiles.cu.
//
// For roi_align it also copies grad_output with channels innermost: a block takes SIDE channels of a region. In the other
// pools a warp takes a region. There every bin of roi_pool reaches a cell, as its indices must be read: that next to its
// cells if it has none.
#include "regions.h"

#define SIDE 32  // bins and channels of a tile that is transposed

#if POOL == 1
__device__ __forceinline__ Reach reach(const Line &line, int bins, int size) {
  const int first = min(cells_of(line, 0, size).first, size - 1);
  return {first, max(cells_of(line, bins - 1, size).last, first)};
}
#else
__device__ __forceinline__ Reach reach(const Line &line, int bins, int size) { return reach_of(line, bins, size); }
#endif

__device__ __forceinline__ int write_reach(const Parameters &p, int k) {
  const Region region = region_of(p, k);
  const Reach rows = reach(region.y, p.PH, p.H), columns = reach(region.x, p.PW, p.W);
  int *to = p.reaches + (i64)k * 5;
  to[0] = region.image;
  to[1] = rows.first, to[2] = rows.last;
  to[3] = columns.first, to[4] = columns.last;
  if (region.image == NO_IMAGE) report_fault(p.faults, k);
  return region.image;
}

#if POOL == 0
extern "C" __global__ void __launch_bounds__(256) region_prepare(const Parameters p) {
  __shared__ Element tile[SIDE][SIDE + 1];
  const int slabs = p.moves ? (p.stride + SIDE - 1) / SIDE : 1;
  const int k = blockIdx.x / slabs, slab = blockIdx.x % slabs;
  if (slab == 0 && threadIdx.x == 0) write_reach(p, k);
  if (!p.moves) return;  // grad_output has the channels innermost already
  const int bins = p.PH * p.PW, first = slab * SIDE, lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
  const Element *from = p.grad + (i64)k * p.channels * bins;
  Element *to = p.moved + (i64)k * p.stride * bins;
  for (int begin = 0; begin < bins; begin += SIDE) {
    for (int c = line; c < SIDE; c += blockDim.x / SIDE) {
      const int channel = first + c, bin = begin + lane;
      const i64 at = p.inner ? (i64)bin * p.channels + channel : (i64)channel * bins + bin;
      tile[c][lane] = channel < p.channels && bin < bins ? from[at] : (Element)0;
    }
    __syncthreads();
    for (int b = line; b < SIDE; b += blockDim.x / SIDE)
      if (begin + b < bins && first + lane < p.stride) to[(i64)(begin + b) * p.stride + first + lane] = tile[lane][b];
    __syncthreads();
  }
}
#else
extern "C" __global__ void __launch_bounds__(256) region_prepare(const Parameters p) {
  let_next_launch_start();
  const int k = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (k == 0 && lane == 0) p.reaches[(i64)p.K * 5] = 0;
  if (k >= p.K) return;
  const int image = __shfl_sync(ALL, lane == 0 ? write_reach(p, k) : 0, 0);
#if POOL == 1
  // The tiles check the indices of other regions.
  const int size = p.channels * p.PH * p.PW;
  for (int e = lane; e < size && image == NO_IMAGE; e += 32) {
    const Index index = p.indices[(i64)k * size + e];
    const int place = p.inner ? e % p.channels * (p.PH * p.PW) + e / p.channels : e;
    if (index < -1 || index >= (Index)p.H * p.W) report_fault(p.faults, p.K + (i64)k * size + place);
  }
#endif
}
#endif
