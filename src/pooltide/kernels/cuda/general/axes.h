// The windows of an axis, computed from the axis (struct Axis of device.h) as geometry.py computes them. The functions
// are not inlined: they divide 64-bit numbers, which takes long to compile.
#pragma once

struct Range {
  int first, count;
};

// The first cell of window o before clipping to the axis; strided axes only.
__device__ __forceinline__ i64 corner(const Axis &a, int o) { return (i64)o * a.s - a.p; }

// The cells from a strided window's first to its last.
__device__ __forceinline__ i64 reach(const Axis &a) { return (i64)a.dilation * (a.k - 1) + 1; }

// The first cell of window o inside the axis, and how many of its cells, a.dilation apart, are inside.
static __device__ __noinline__ Range cells(const Axis &a, int o) {
  Range found;
  if (a.k == 0) {
    found.first = (int)((i64)o * a.length / a.outputs);
    found.count = (int)(((i64)(o + 1) * a.length + a.outputs - 1) / a.outputs) - found.first;
    return found;
  }
  const i64 from = corner(a, o), skipped = from < 0 ? (-from + a.dilation - 1) / a.dilation : 0;
  const i64 first = from + skipped * a.dilation, inside = (a.length - first + a.dilation - 1) / a.dilation;
  found.first = (int)first;
  found.count = (int)max(min(a.k - skipped, inside), (i64)0);
  return found;
}

// The length of window o, cells of the padding included.
static __device__ __noinline__ i64 extent(const Axis &a, int o) {
  if (a.k == 0) return cells(a, o).count;
  return min(reach(a), (i64)a.length + a.p - corner(a, o));
}

// The first window whose span holds a cell, and how many do.
static __device__ __noinline__ Range windows(const Axis &a, int cell) {
  i64 first, last;
  if (a.k == 0) {
    first = (i64)cell * a.outputs / a.length;
    last = ((i64)(cell + 1) * a.outputs - 1) / a.length;
  } else {
    const i64 before = (i64)cell + a.p - reach(a);  // a window that begins at or before this cell has ended
    first = before < 0 ? 0 : before / a.s + 1;
    last = min(((i64)cell + a.p) / a.s, (i64)a.outputs - 1);
  }
  const Range found = {(int)first, (int)max(last - first + 1, (i64)0)};
  return found;
}
