// The gradient of maxima: every window adds its gradient to the cell that its index names, in ascending order
// of the windows.
//
// A plane is plane_cells · inner elements: inner is 1, or the channels where there are few of them. A warp
// holds a band of a plane (or several small planes) in shared memory and takes 32 consecutive windows at a
// time. Lanes that name the same cell form a group (__match_any_sync); the first lane of the group adds the
// gradients in lane order, which is window order.
//
//     BANDS 0: a warp computes `share` whole planes.
//           1: a block computes a plane, or one of `parts` of it, band by band, in two passes (two_passes.h). In
//              the first pass a band reads only the windows that may name its cells.
//     INNER 1: inner may be more than 1
//     DISJOINT 1: windows have no cell in common. Gradients whose indices are inside their windows are written
//              without a look at each other; if there are others, all are added in order (BANDS 1: in the second
//              pass)
#include "indices.h"
#include "two_passes.h"

#define VECTOR (16 / (int)sizeof(Sum))  // elements that a lane clears or writes at once
#define AHEAD 4  // groups of 32 windows that are loaded together

struct Band {
  int begin, size;                   // elements of the plane
  int ranges, first, count, stride;  // of windows: `count` from `first` on, and again every `stride`
};

// Clears `size` sums. The array is a whole number of vectors long.
__device__ __forceinline__ void clear(Sum *sums, int size, int lane) {
#pragma unroll 4
  for (int i = lane; i * VECTOR < size; i += 32) ((uint4 *)sums)[i] = make_uint4(0, 0, 0, 0);
}

// Writes sums[skip…] to `to`; sums + skip and `to` lie alike to a vector's boundary.
__device__ __forceinline__ void flush(const Sum *sums, int skip, int size, Element *to, int lane) {
  const int end = skip + size, first = skip ? VECTOR : 0, last = end / VECTOR * VECTOR;
  to -= skip;
#pragma unroll 4
  for (int i = first + lane * VECTOR; i < last; i += 32 * VECTOR) {
#if ELEMENT < 2
    *(uint4 *)(to + i) = *(const uint4 *)(sums + i);
#else
    const float4 each = *(const float4 *)(sums + i);
    *(uint2 *)(to + i) = make_uint2(narrow_two(each.x, each.y), narrow_two(each.z, each.w));
#endif
  }
  if (lane >= skip && lane < min(first, end)) to[lane] = narrow(sums[lane]);
  if (max(last, first) + lane < end) to[max(last, first) + lane] = narrow(sums[max(last, first) + lane]);
}

// How many elements lie between the last vector's boundary and this address.
__device__ __forceinline__ int skipped(const Element *to) {
  return (int)((u64)to / sizeof(Element) % VECTOR);
}

// Adds 32 gradients, lane by lane where they name the same cell. `local` is the cell, or -1.
__device__ __forceinline__ void add_in_order(Sum *sums, int local, Sum gradient, int lane) {
  const u32 group = __match_any_sync(ALL, local < 0 ? ~lane : local);
  const bool first = local >= 0 && (group & ((1u << lane) - 1)) == 0;
  Sum sum = first ? sums[local] + gradient : (Sum)0;
  u32 rest = first ? group & (group - 1) : 0;  // the lanes still to be added
  while (__any_sync(ALL, rest != 0)) {
    const Sum next = __shfl_sync(ALL, gradient, rest ? __ffs(rest) - 1 : lane);
    if (rest) sum += next;
    rest &= rest - 1;
  }
  if (first) sums[local] = sum;
  __syncwarp();
}

// Clears a band's sums, and calls body(e, end, gradient, index) for its windows, 32 at a time: e is the lane's
// window, if it is before `end`. All lanes call it.
template <class Body>
__device__ __forceinline__ void each_window(const Parameters &p, i64 plane, const Band &band, Sum *sums, int skip,
                                            int lane, Body body) {
  const i64 start = plane * p.plane_windows;  // elements of grad
  const Element *grad = p.grad + start;
  const Index *indices = p.indices + start;
  Element gradients[AHEAD];
  Index found[AHEAD];
  auto load = [&](int from, int end) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int e = from + 32 * i + lane;
      gradients[i] = e < end ? grad[e] : (Element)0;
      found[i] = e < end ? indices[e] : (Index)0;
    }
  };
  if (band.ranges) load(band.first, band.first + band.count);
  clear(sums, skip + band.size, lane);
  __syncwarp();
  for (int r = 0; r < band.ranges; ++r) {
    const int begin = band.first + r * band.stride, end = begin + band.count;
    for (int base = begin; base < end; base += 32 * AHEAD) {
      Element gradient[AHEAD];
      Index index[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) gradient[i] = gradients[i], index[i] = found[i];
      if (base + 32 * AHEAD < end)
        load(base + 32 * AHEAD, end);
      else if (r + 1 < band.ranges)
        load(begin + band.stride, end + band.stride);
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (base + 32 * i < end) body(base + 32 * i + lane, end, gradient[i], index[i]);
      }
    }
  }
}

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
  each_window(p, plane, band, sums, skip, lane, [&](int e, int end, Element gradient, Index index) {
    int local = -1;
    if (e < end) {
      const Named found = named(p, band, e, index);
      if (report && found.cell < 0) {  // the position counts (N, C, Do, Ho, Wo)
        const u32 windows = p.plane_windows / (INNER ? p.by_inner.n : 1);
        report_fault(p.faults, plane * p.plane_windows + found.image + (i64)found.c * windows + found.q);
      }
      local = found.local;
      added += local >= 0;
    }
    add_in_order(sums + skip, local, widen(gradient), lane);
  });
  return added;
}

#if DISJOINT
// Whether a cell lies between the first and the last cell of a window.
__device__ __forceinline__ bool holds(const Parameters &p, u32 q, u32 cell) {
  const u32 row = over(q, p.by_wo), slice_of_q = over(row, p.by_ho);
  const u32 line = over(cell, p.by_w), slice = over(line, p.by_h);
  const int d = slice - (slice_of_q * p.stride_d - p.padding_d);
  const int h = line - slice * p.by_h.n - ((row - slice_of_q * p.by_ho.n) * p.stride_h - p.padding_h);
  const int w = cell - line * p.by_w.n - ((q - row * p.by_wo.n) * p.stride_w - p.padding_w);
  return (u32)d < (u32)p.reach_d && (u32)h < (u32)p.reach_h && (u32)w < (u32)p.reach_w;
}

// The same as add_windows, for indices inside their windows; others are left out and not counted. Windows have
// no cell in common, so no two lanes write the same sum.
__device__ __forceinline__ int place_windows(const Parameters &p, i64 plane, const Band &band, Sum *sums, int skip,
                                             int lane) {
  int added = 0;
  each_window(p, plane, band, sums, skip, lane, [&](int e, int end, Element gradient, Index index) {
    if (e >= end) return;
    const Named found = named(p, band, e, index);
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
  const Band band = {0, size, 1, 0, planes * p.plane_windows, 0};
#if DISJOINT
  const int added = place_windows(p, plane, band, sums, skip, lane);
  if (sum_of_warp(added) != band.count)
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
      Band band = {facts[0], facts[1] - facts[0], facts[2], facts[3], facts[4], facts[5]};
      if (everything) band.ranges = 1, band.first = 0, band.count = p.plane_windows;
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
