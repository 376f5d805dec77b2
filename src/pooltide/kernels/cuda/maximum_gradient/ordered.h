// What the scatters of planes share: windows are read 32 at a time, and added in ascending order.
//
// A warp keeps sums in shared memory and takes 32 consecutive windows at a time. Lanes that name the same cell form
// a group; the first lane of the group adds the gradients in lane order, which is window order.
//
// __match_any_sync finds the groups for any indices, but takes longer than everything else. NEAR is a faster way:
//     NEAR n       at most n windows hold a column, and at most NEAR_ROWS a row of cells. If every lane's index names a
//                  cell inside the lane's window, windows that name the same cell are at most NEAR_ROWS - 1 rows and
//                  n - 1 columns apart. So a lane compares only the lanes of such windows
//     LONG_ROWS 1  two windows of different rows in a warp are too many columns apart to name the same cell, so it is
//                  enough if the index names a column inside the window; NEAR_ROWS is 1
//     PADDED 1     rows of windows are padded to p.by_row.n windows for LONG_ROWS; lanes in the padding do nothing
//     NEAR 0       always __match_any_sync
//     TABLE 1      p.spans has the first cell of every window and how many cells it spans, for the axes d, h and w in
//                  turn; 0: windows are p.stride_d, p.stride_h and p.stride_w cells apart
//     DEEP 1       planes have more than one slice of cells or of windows
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

#if NEAR || DISJOINT
// Whether a cell is between the first and the last cell of a window on one axis. `from` is the axis' first entry in
// p.spans.
__device__ __forceinline__ bool spans(const Parameters &p, int from, int window, int cell, int stride, int padding,
                                      int reach) {
#if TABLE
  const int2 span = ((const int2 *)p.spans)[from + window];
#else
  const int2 span = make_int2(window * stride - padding, reach);
#endif
  return (u32)(cell - span.x) < (u32)span.y;
}

// Whether a cell is between the first and the last cell of window q of its plane: on all axes, or with LONG_ROWS on the
// w axis.
__device__ __forceinline__ bool holds(const Parameters &p, u32 q, u32 cell) {
  const int rows = p.by_ho.n, slices = over(p.window_rows, p.by_ho);
  u32 row = over(q, p.by_wo), line = over(cell, p.by_w);
  bool inside = spans(p, slices + rows, q - row * p.by_wo.n, cell - line * p.by_w.n, p.stride_w, p.padding_w, p.reach_w);
  if (LONG_ROWS && !DISJOINT) return inside;
#if DEEP
  const u32 slice_of_q = over(row, p.by_ho), slice = over(line, p.by_h);
  row -= slice_of_q * p.by_ho.n, line -= slice * p.by_h.n;
  inside = inside && spans(p, 0, slice_of_q, slice, p.stride_d, p.padding_d, p.reach_d);
#endif
  return inside && spans(p, slices, row, line, p.stride_h, p.padding_h, p.reach_h);
}
#endif

#if NEAR
// Calls body(i, distance) for the lanes to compare: the i-th one is `distance` lanes after this one. Ascends.
template <class Body>
__device__ __forceinline__ void each_near(const Parameters &p, Body body) {
  int i = 0;
#pragma unroll
  for (int j = 1; j < NEAR; ++j) body(i++, j);
#pragma unroll
  for (int row = 1; row < NEAR_ROWS; ++row)
#pragma unroll
    for (int j = 1 - NEAR; j < NEAR; ++j, ++i)
      if (row * (int)p.by_wo.n + j < 32) body(i, row * p.by_wo.n + j);
}

// The same as add_in_order, if windows that name the same cell are near each other.
__device__ __forceinline__ void add_near(const Parameters &p, Sum *sums, int local, Sum gradient, int lane) {
  u32 equal = 0;  // bit i: the i-th lane to compare names the same cell
  u32 later = 0;  // lanes that are not the first of their group
  each_near(p, [&](int i, int distance) {
    const bool same = __shfl_down_sync(ALL, local, distance) == local && lane + distance < 32;
    if (same) equal |= 1u << i;
    later |= __ballot_sync(ALL, same) << distance;
  });
  const bool first = local >= 0 && !(later >> lane & 1);
  Sum sum = first ? sums[local] + gradient : (Sum)0;
  each_near(p, [&](int i, int distance) {
    const Sum next = __shfl_down_sync(ALL, gradient, distance);
    if (equal >> i & 1) sum += next;
  });
  if (first) sums[local] = sum;
  __syncwarp();
}
#endif

// Adds the gradients of 32 windows; `q` is the lane's window, `cell` the one that it names.
__device__ __forceinline__ void add_windows_of_lanes(const Parameters &p, Sum *sums, int local, u32 q, u32 cell,
                                                     Sum gradient, int lane) {
#if NEAR
  if (__all_sync(ALL, local < 0 || holds(p, q, cell))) return add_near(p, sums, local, gradient, lane);
#endif
  add_in_order(sums, local, gradient, lane);
}

// The window that a lane works on.
struct Taken {
  int e;      // the element of grad, counted from the first element of the plane
  bool live;  // true if the lane has a window
};

// Calls body(taken, gradient, index) for these windows, 32 at a time. All lanes call it. Before the windows of
// range r it calls before(r); before(0) is called in any case.
template <class Before, class Body>
__device__ __forceinline__ void each_window(const Parameters &p, i64 plane, const Ranges &windows, int lane,
                                            Before before, Body body) {
  const i64 start = plane * p.plane_windows;  // elements of grad
  const Element *grad = p.grad + start;
  const Index *indices = p.indices + start;
#if PADDED
  const u32 row_windows = p.by_wo.n;
  const int count = windows.count / row_windows * p.by_row.n;  // of a range, with those that do nothing
#else
  const int count = windows.count;
#endif
  auto taken = [&](int begin, int nth) {
#if PADDED
    const u32 row = over(nth, p.by_row), column = nth - row * p.by_row.n;
    const Taken found = {(int)(begin + row * row_windows + column), nth < count && column < row_windows};
#else
    const Taken found = {begin + nth, nth < count};
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
