// What the scatters of planes share: windows are read 32 at a time, and added in ascending order.
//
// A warp keeps sums in shared memory and takes 32 consecutive windows at a time. Lanes that name the same cell form
// a group; the first lane of the group adds the gradients in lane order, which is window order.
//
// __match_any_sync finds the groups for any indices, but takes longer than everything else. NEAR is a faster way:
//     NEAR n     at most n windows hold a column. If the index of every lane names a column inside the lane's window,
//                the lanes of a group are less than n lanes apart, and a lane compares only the n - 1 lanes after it.
//                Rows of windows are padded to p.by_row.n windows, so that two lanes of a warp in different rows never
//                name the same cell; lanes in the padding do nothing
//     NEAR 0     always __match_any_sync
//     ONE_ROW 1  a plane has one row of windows; `Ranges` may be a part of that row
//     TABLE 1    the columns of a window are in a table; 0: windows are p.stride_w columns apart
#pragma once

#include "indices.h"
#include "warps.h"

#define VECTOR (16 / (int)sizeof(Sum))  // elements that a lane clears or writes at once
#define AHEAD 4  // groups of 32 windows that are loaded together

// Windows of a plane: `count` from `first` on, and again every `stride`, `ranges` times.
struct Ranges {
  int ranges, first, count, stride;
};

// Clears `size` sums. The array is a whole number of vectors long.
__device__ __forceinline__ void clear(Sum *sums, int size, int lane) {
#pragma unroll 4
  for (int i = lane; i * VECTOR < size; i += 32) ((uint4 *)sums)[i] = make_uint4(0, 0, 0, 0);
}

// Writes `size` sums, from sums[skip] on, to `to`. Both addresses are `skip` elements after a vector boundary.
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

#if NEAR
// The same for lanes whose groups are less than NEAR lanes apart. All lanes read sums, only the first of a group uses
// and writes what it read; compute-sanitizer's racecheck warns of the other reads.
__device__ __forceinline__ void add_near(Sum *sums, int local, Sum gradient, int lane) {
  Sum sum = local >= 0 ? sums[local] + gradient : (Sum)0;
  u32 later = 0;  // lanes that are not the first of their group
#pragma unroll
  for (int j = 1; j < NEAR; ++j) {
    const int other = __shfl_down_sync(ALL, local, j);
    const Sum next = __shfl_down_sync(ALL, gradient, j);
    const bool same = other == local && lane + j < 32;
    if (same) sum += next;
    later |= __ballot_sync(ALL, same) << j;
  }
  if (local >= 0 && !(later >> lane & 1)) sums[local] = sum;
  __syncwarp();
}
#endif

// Adds the gradients of 32 windows; `column` is that of the lane's window, `cell` the one that it names.
__device__ __forceinline__ void add_windows_of_lanes(const Parameters &p, Sum *sums, int local, u32 cell, int column,
                                                     Sum gradient, int lane) {
#if NEAR
  bool inside = true;
  if (local >= 0) {
#if TABLE
    const int2 span = ((const int2 *)p.columns)[column];  // the first, and how many
#else
    const int2 span = make_int2(column * p.stride_w - p.padding_w, p.reach_w);
#endif
    inside = cell - over(cell, p.by_w) * p.by_w.n - span.x < (u32)span.y;
  }
  if (__all_sync(ALL, inside)) return add_near(sums, local, gradient, lane);
#endif
  add_in_order(sums, local, gradient, lane);
}

// The window that a lane works on.
struct Taken {
  int e;       // the element of grad, counted from the first element of the plane
  int column;  // the window's position in its row of windows; used only with NEAR
  bool live;   // true if the lane has a window
};

// Calls body(taken, gradient, index) for these windows, 32 at a time. All lanes call it. Before the windows of
// range r it calls before(r); before(0) is called in any case.
template <class Before, class Body>
__device__ __forceinline__ void each_window(const Parameters &p, i64 plane, const Ranges &windows, int lane,
                                            Before before, Body body) {
  const i64 start = plane * p.plane_windows;  // elements of grad
  const Element *grad = p.grad + start;
  const Index *indices = p.indices + start;
#if NEAR && !ONE_ROW
  const int count = windows.count / p.row_windows * p.by_row.n;  // of a range, with those that do nothing
#else
  const int count = windows.count;
#endif
  auto taken = [&](int begin, int nth) {
    Taken found;
#if NEAR && !ONE_ROW
    const u32 row = over(nth, p.by_row);
    found.column = nth - row * p.by_row.n;
    found.live = nth < count && found.column < p.row_windows;
    found.e = begin + row * p.row_windows + found.column;
#else
    found.column = found.e = begin + nth, found.live = nth < count;
#endif
    return found;
  };
  Element gradients[AHEAD];
  Index found[AHEAD];
  auto load = [&](int begin, int from) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const Taken next = taken(begin, from + 32 * i + lane);
      gradients[i] = next.live ? grad[next.e] : (Element)0;
      found[i] = next.live ? indices[next.e] : (Index)0;
    }
  };
  if (windows.ranges) load(windows.first, 0);
  before(0);
  for (int r = 0; r < windows.ranges; ++r) {
    if (r) before(r);
    const int begin = windows.first + r * windows.stride;
    for (int base = 0; base < count; base += 32 * AHEAD) {
      Element gradient[AHEAD];
      Index index[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) gradient[i] = gradients[i], index[i] = found[i];
      if (base + 32 * AHEAD < count)
        load(begin, base + 32 * AHEAD);
      else if (r + 1 < windows.ranges)
        load(begin + windows.stride, 0);
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (base + 32 * i < count) body(taken(begin, base + 32 * i + lane), gradient[i], index[i]);
      }
    }
  }
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
#endif
