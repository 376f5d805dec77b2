// The pools over regions. A thread computes a bin of CHANNELS channels, as many groups of channels apart.
#include "regions.h"

extern "C" __global__ void __launch_bounds__(256) region_forward(const Parameters p) {
  const int bins = p.PH * p.PW;
  const i64 elements = (i64)p.K * bins * p.groups;
  const i64 plane = (i64)p.H * p.W, all = (i64)p.channels * (SENSITIVE ? bins : 1);
  const i64 step = p.inner ? all : 1, apart = p.inner ? 1 : plane;  // between cells, and between channels
  for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < elements; e += (i64)gridDim.x * blockDim.x) {
    const int k = (int)(e / ((i64)bins * p.groups)), within = (int)(e - (i64)k * bins * p.groups);
    const int bin = p.inner ? within / p.groups : within % bins, group = p.inner ? within % p.groups : within / bins;
    const int ph = bin / p.PW, pw = bin % p.PW;
    const Region region = region_of(p, k);
    if (region.image == NO_IMAGE && within == 0) report_fault(p.faults, k);
    const Element *from[CHANNELS];
    Sum results[CHANNELS];
    Index indices[CHANNELS];
    const bool there = region.image != NO_IMAGE;
#pragma unroll
    for (int i = 0; i < CHANNELS; ++i) {
      const int channel = min(group + i * p.groups, p.channels - 1);
      const i64 input_channel = SENSITIVE ? (i64)channel * bins + bin : channel;
      from[i] = p.x + (i64)(there ? region.image : 0) * all * plane + input_channel * apart;
      results[i] = 0, indices[i] = -1;
    }
#if SAMPLED
    if (there) {
      const Span down = span_of(region.y, p.PH, -1, (Sum)p.H), along = span_of(region.x, p.PW, -1, (Sum)p.W);
      const Reach ys = samples_at(region.y, down, ph), xs = samples_at(region.x, along, pw);
      for (int iy = ys.first; iy <= ys.last; ++iy) {
        Place y;
        if (!placed(position(region.y, ph, iy), p.H, y)) continue;
        const i64 low = (i64)y.low * p.W, high = (i64)y.high * p.W;
        for (int ix = xs.first; ix <= xs.last; ++ix) {
          Place x;
          if (!placed(position(region.x, pw, ix), p.W, x)) continue;
          const Sum hy = (Sum)1 - y.part, hx = (Sum)1 - x.part;
          const Sum w1 = hy * hx, w2 = hy * x.part, w3 = y.part * hx, w4 = y.part * x.part;
          const i64 at1 = (low + x.low) * step, at2 = (low + x.high) * step;
          const i64 at3 = (high + x.low) * step, at4 = (high + x.high) * step;
#pragma unroll
          for (int i = 0; i < CHANNELS; ++i) {
            const Sum v1 = widen(from[i][at1]), v2 = widen(from[i][at2]);
            const Sum v3 = widen(from[i][at3]), v4 = widen(from[i][at4]);
            results[i] += w1 * v1 + w2 * v2 + w3 * v3 + w4 * v4;
          }
        }
      }
      const Sum count = (Sum)samples_of(region);
#pragma unroll
      for (int i = 0; i < CHANNELS; ++i) results[i] /= count;
    }
#else
    Reach ys = {0, -1}, xs = {0, -1};
    // The forward of ps_roi_pool leaves out the last row and column.
    if (there && region.y.grid && region.x.grid)
      ys = cells_of(region.y, ph, p.H - (POOL == 3)), xs = cells_of(region.x, pw, p.W - (POOL == 3));
    if (ys.first <= ys.last && xs.first <= xs.last) {
#if POOL == 1
#pragma unroll
      for (int i = 0; i < CHANNELS; ++i) results[i] = -3.4028234663852886e38f;
#endif
      for (int h = ys.first; h <= ys.last; ++h)
        for (int w = xs.first; w <= xs.last; ++w) {
          const i64 at = (i64)h * p.W + w;
#pragma unroll
          for (int i = 0; i < CHANNELS; ++i) {
            const Sum value = widen(from[i][at * step]);
#if POOL == 1
            if (value > results[i]) results[i] = value, indices[i] = (Index)at;
#else
            results[i] += value;
#endif
          }
        }
#if POOL == 3
      const Sum count = (Sum)((i64)(ys.last - ys.first + 1) * (xs.last - xs.first + 1));
#pragma unroll
      for (int i = 0; i < CHANNELS; ++i) results[i] /= count;
#endif
    }
#endif
#pragma unroll
    for (int i = 0; i < CHANNELS; ++i) {
      const int channel = group + i * p.groups;
      if (channel >= p.channels) break;
      const i64 to = ((i64)k * bins * p.channels) + (p.inner ? (i64)bin * p.channels + channel : (i64)channel * bins + bin);
      p.out[to] = narrow(results[i]);
      if (POOL == 1 && p.indexed) p.indices[to] = indices[i];
    }
  }
}
