// How forwards divide their windows among threads.
//
// A tensor is (planes, D, H, W, inner): N·C planes with inner = 1, or N images with C channels. A thread owns a
// column of windows, one (plane, od, ow, c), and walks down some of its rows. Threads side by side own columns side
// by side, so that their addresses are side by side, too. A block has `share` planes, or `width` columns of one.
//
//     ADJACENT  1: the cells of a window's row are side by side in memory; 0: they are p.step elements apart
//     CLIPPED_H, CLIPPED_W   1: some windows have fewer cells inside the axis than others
#pragma once

#include "spans.h"

struct Column {
  bool live;     // whether the thread has a column
  int od, ow;    // its windows
  int oh0, oh1;  // rows of windows
  i64 from;      // the element of x at (plane, 0, 0, 0, c)
  i64 to;        // the element of out at (plane, od, oh0, ow, c)
};

__device__ __forceinline__ Column column_of(const Parameters &p) {
  Column found;
  u32 at = blockIdx.x, next = over(at, p.by_h_chunks);
  found.oh0 = (int)(at - next * p.by_h_chunks.n) * p.h_chunk;
  found.oh1 = min(found.oh0 + p.h_chunk, p.Ho);
  at = next, next = over(at, p.by_do);
  found.od = (int)(at - next * p.by_do.n);
  at = next, next = over(at, p.by_w_chunks);
  const u32 nth = over(threadIdx.x, p.by_width);  // plane of the block
  const u32 x = (at - next * p.by_w_chunks.n) * p.by_width.n + threadIdx.x - nth * p.by_width.n;
  const i64 plane = (i64)next * p.share + nth;
  found.live = (int)nth < p.share && plane < p.planes && (int)x < p.columns;
  found.ow = (int)over(x, p.by_inner);
  found.from = plane * p.plane_elements + (int)(x - (u32)found.ow * p.by_inner.n);
  found.to = plane * p.plane_windows + (i64)(found.od * p.Ho + found.oh0) * p.columns + x;
  return found;
}

// The element at (d, h) of a column. p.pitch is the bytes of a row; one multiplication finds the address.
__device__ __forceinline__ const Element *row_of(const Parameters &p, const Element *from, int d, int h) {
  return (const Element *)((const char *)from + (i64)(d * p.H + h) * p.pitch);
}

__device__ __forceinline__ Sum cell_of(const Parameters &p, const Element *row, int m) {
#if ADJACENT
  return widen(__ldg(row + m));
#else
  return widen(__ldg(row + (i64)m * p.step));
#endif
}
