// The gradient of maxima: every window adds its gradient to the cell that its index names, in ascending order
// of the windows.
//
// A plane is plane_cells · inner elements: inner is 1, or the channels where there are few of them. A warp
// holds a band of a plane (or several small planes) in shared memory (ordered.h).
//
//     BANDS 0: a warp computes `share` whole planes.
//           1: a block computes a plane, or one of `parts` of it, band by band, in two passes (two_passes.h). In
//              the first pass a band reads only the windows that may name its cells.
//     INNER 1: inner may be more than 1
//     DISJOINT 1: windows have no cell in common. If an index names a cell of its own window, no other such index names
//              that cell, so lanes write these gradients without comparing cells. If any index is outside its window,
//              the sums are cleared and all gradients are added in order (BANDS 1: in the second pass)
#include "ordered.h"
#include "two_passes.h"

struct Band {
  int begin, size;  // elements of the plane
  Ranges windows;   // that may name them
};

// A window among the elements of grad, and the cell that its index names.
struct Named {
  u32 image;   // the first element of the window's plane
  u32 q, c;    // the window of the plane, and its channel
  int cell;    // of the plane, or -1
  int local;   // of the band, or -1
};

__device__ __forceinline__ Named named(const Parameters &p, const Band &band, int e, Index index) {
  Named found;
#if BANDS
  const u32 of_plane = e, shift = 0;
#else
  const u32 nth = over(e, p.by_plane_windows), of_plane = e - nth * p.plane_windows;
  const u32 shift = nth * p.plane_elements;
#endif
  found.image = e - of_plane;
#if INNER
  found.q = over(of_plane, p.by_inner), found.c = of_plane - found.q * p.by_inner.n;
#else
  found.q = of_plane, found.c = 0;
#endif
  found.cell = cell_of(index, found.q, p);
  const u32 local = shift + found.cell * (INNER ? p.by_inner.n : 1) + found.c - band.begin;
  found.local = found.cell >= 0 && local < (u32)band.size ? (int)local : -1;
  return found;
}

// Sets a band's sums, sums[skip…], to those of its windows, and returns how many gradients this lane added.
// `report`: count the indices that are outside the plane.
__device__ __forceinline__ int add_windows(const Parameters &p, i64 plane, const Band &band, Sum *sums, int skip,
                                           int lane, bool report) {
  int added = 0;
  auto ready = [&](int range) {
    if (range == 0) clear(sums, skip + band.size, lane), __syncwarp();
  };
  each_window(p, plane, band.windows, lane, ready, [&](const Taken &at, Element gradient, Index index) {
    Named found;
    found.local = -1, found.q = found.cell = 0;
    if (at.live) {
      found = named(p, band, at.e, index);
      if (report && found.cell < 0) {  // the position counts (N, C, Do, Ho, Wo)
        const u32 windows = p.plane_windows / (INNER ? p.by_inner.n : 1);
        report_fault(p.faults, plane * p.plane_windows + found.image + (i64)found.c * windows + found.q);
      }
      added += found.local >= 0;
    }
    add_windows_of_lanes(p, sums + skip, found.local, found.q, found.cell, widen(gradient), lane);
  });
  return added;
}

#if DISJOINT
// The same as add_windows, for indices inside their windows; others are left out and not counted. Windows have
// no cell in common, so no two lanes write the same sum.
__device__ __forceinline__ int place_windows(const Parameters &p, i64 plane, const Band &band, Sum *sums, int skip,
                                             int lane) {
  int added = 0;
  auto ready = [&](int range) {
    if (range == 0) clear(sums, skip + band.size, lane), __syncwarp();
  };
  each_window(p, plane, band.windows, lane, ready, [&](const Taken &at, Element gradient, Index index) {
    if (!at.live) return;
    const Named found = named(p, band, at.e, index);
    if (found.local >= 0 && holds(p, found.q, found.cell)) {
      sums[skip + found.local] = (Sum)0 + widen(gradient);
      ++added;
    }
  });
  __syncwarp();
  return added;
}
#endif

#if !BANDS

extern "C" __global__ void __launch_bounds__(THREADS) scatter_planes(const Parameters p) {
  SHARED(arena);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 plane = ((i64)blockIdx.x * (blockDim.x / 32) + warp) * p.share;
  if (plane >= p.planes) return;
  const int planes = (int)min((i64)p.share, p.planes - plane), size = planes * p.plane_elements;
  Element *to = p.out + plane * p.plane_elements;
  const int skip = skipped(to);
  Sum *sums = (Sum *)(arena + (i64)warp * p.warp_bytes);
  const Band band = {0, size, {1, 0, planes * p.plane_windows, 0}};
#if DISJOINT
  const int added = place_windows(p, plane, band, sums, skip, lane);
  if (sum_of_warp(added) != band.windows.count)
#endif
    add_windows(p, plane, band, sums, skip, lane, true);
  flush(sums, skip, size, to, lane);
}

#else

extern "C" __global__ void __launch_bounds__(THREADS) scatter_planes(const Parameters p) {
  SHARED(arena);
  int *total = (int *)arena;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  Sum *sums = (Sum *)(arena + 16 + (i64)warp * p.warp_bytes);

  auto compute = [&](i64 plane, int from, int to, bool everything) {
    int added = 0;
    for (int b = from + warp; b < to; b += warps) {
      const int *facts = p.pieces + 6 * b;
      Band band = {facts[0], facts[1] - facts[0], {facts[2], facts[3], facts[4], facts[5]}};
      if (everything) band.windows = {1, 0, p.plane_windows, 0};
      Element *out = p.out + plane * p.plane_elements + band.begin;
      const int skip = skipped(out);
#if DISJOINT
      if (!everything)
        added += place_windows(p, plane, band, sums, skip, lane);
      else
#endif
        added += add_windows(p, plane, band, sums, skip, lane, everything && b == 0);
      flush(sums, skip, band.size, out, lane);
      __syncwarp();
    }
    return added;
  };

  in_two_passes(p, p.planes, 1, p.bands, total, [&](i64) { return p.plane_windows; }, compute);
}

#endif
