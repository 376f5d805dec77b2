// Before a gradient of regions: which cells each region reaches, and grad_output with channels innermost.
//
// A block takes some channels of a region, that of the first ones also writes `reaches`: the image and the first and last
// row and column. For roi_pool these are the cells that its indices name, so the next kernel needs no other check.
#include "regions.h"

#define SIDE 32  // bins and channels of a tile that is transposed

__device__ __forceinline__ void write_reach(const Parameters &p, int k, int image, Reach rows, Reach columns) {
  int *to = p.reaches + (i64)k * 5;
  to[0] = image;
  to[1] = rows.first, to[2] = rows.last;
  to[3] = columns.first, to[4] = columns.last;
}

#if POOL == 1
extern "C" __global__ void __launch_bounds__(256) region_prepare(const Parameters p) {
  __shared__ int ends[4];  // first row, first column, and the last ones negated
  const int k = blockIdx.x, size = p.channels * p.PH * p.PW;
  if (threadIdx.x < 4) ends[threadIdx.x] = 2147483647;
  __syncthreads();
  int found[4] = {2147483647, 2147483647, 2147483647, 2147483647};
  for (int e = threadIdx.x; e < size; e += blockDim.x) {
    const Index index = p.indices[(i64)k * size + e];
    if (index < 0 || index >= (Index)p.H * p.W) {
      const int place = p.inner ? e % p.channels * (p.PH * p.PW) + e / p.channels : e;
      if (index != -1) report_fault(p.faults, p.K + (i64)k * size + place);
      continue;
    }
    const int row = over((u32)index, p.by_W), column = (int)index - row * p.W;
    found[0] = min(found[0], row), found[1] = min(found[1], column);
    found[2] = min(found[2], -row), found[3] = min(found[3], -column);
  }
  for (int i = 0; i < 4; ++i) {
    for (int step = 16; step; step /= 2) found[i] = min(found[i], __shfl_xor_sync(ALL, found[i], step));
    if (threadIdx.x % 32 == 0) atomicMin(&ends[i], found[i]);
  }
  __syncthreads();
  if (threadIdx.x) return;
  const Region region = region_of(p, k);
  if (region.image == NO_IMAGE) report_fault(p.faults, k);
  const bool none = ends[2] > 0;
  write_reach(p, k, region.image, {none ? 0 : ends[0], none ? -1 : -ends[2]}, {none ? 0 : ends[1], none ? -1 : -ends[3]});
}
#else
extern "C" __global__ void __launch_bounds__(256) region_prepare(const Parameters p) {
  __shared__ Element tile[SIDE][SIDE + 1];
  const int slabs = p.moves ? (p.stride + SIDE - 1) / SIDE : 1;
  const int k = blockIdx.x / slabs, slab = blockIdx.x % slabs;
  if (slab == 0 && threadIdx.x == 0) {
    const Region region = region_of(p, k);
    if (region.image == NO_IMAGE) report_fault(p.faults, k);
    write_reach(p, k, region.image, reach_of(region.y, p.PH, p.H), reach_of(region.x, p.PW, p.W));
  }
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
#endif
