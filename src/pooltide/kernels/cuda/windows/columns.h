// How forwards divide their windows among threads.
//
// A tensor is (planes, D, H, W, inner): N·C planes with inner = 1, or N images with C channels. A thread owns a
// column of windows, one (plane, od, ow, c), and walks down some of its rows. Threads side by side own columns side
// by side, so that their addresses are side by side, too. A block has `share` planes, or the columns of by_width.n
// threads of one.
//
//     VECTOR    how many columns a thread owns: 1, 2, 4 or 8 neighbouring channels, at most 16 bytes; if PAIRED, two
//               neighbours in a row. It reads and writes all of them at once if tensors are aligned to as many bytes
//     ADJACENT  1: the cells of a window's row are side by side in memory; 0: they are p.step elements apart
//     SPREAD    1: windows share no rows, and rows of windows are short. Rows of windows are numbered through all planes;
//               a block has p.h_chunk of them, and a thread takes every p.share-th one. So threads side by side also have
//               rows below each other, and the cells of a warp lie in few lines of memory
//     BATCH     where COLUMNS is 0, the cells of a window's row that a thread loads before it uses the first one
//     CLIPPED_H, CLIPPED_W   1: some windows have fewer cells inside the axis than others
#pragma once

#include "spans.h"

struct Column {
  bool live;     // whether the thread has a column
  int od, ow;    // its windows
  int oh0, oh1;  // rows of windows; if SPREAD, these count through all planes
  i64 from;      // the element of x at (plane, 0, 0, 0, c); 0 if SPREAD
  i64 to;        // the element of out at (plane, od, oh0, ow, c)
};

struct Cells {
  Sum at[VECTOR];
};

__device__ __forceinline__ Column column_of(const Parameters &p) {
  Column found;
#if SPREAD
  const u32 nth = over(threadIdx.x, p.by_width), x = threadIdx.x - nth * p.by_width.n;
  const int first = (int)blockIdx.x * p.h_chunk;
  found.live = (int)nth < p.share;
  found.od = 0, found.ow = (int)x * VECTOR;
  found.oh0 = first + (int)nth, found.oh1 = (int)min((i64)first + p.h_chunk, p.planes * p.Ho);
  found.from = 0, found.to = (i64)found.oh0 * p.columns + found.ow;
  return found;
#else
  u32 at = blockIdx.x, next = over(at, p.by_h_chunks);
  found.oh0 = (int)(at - next * p.by_h_chunks.n) * p.h_chunk;
  found.oh1 = min(found.oh0 + p.h_chunk, p.Ho);
  at = next, next = over(at, p.by_do);
  found.od = (int)(at - next * p.by_do.n);
  at = next, next = over(at, p.by_w_chunks);
  const u32 nth = over(threadIdx.x, p.by_width);  // plane of the block
  const u32 x = (at - next * p.by_w_chunks.n) * p.by_width.n + threadIdx.x - nth * p.by_width.n;
  const i64 plane = (i64)next * p.share + nth;
  found.live = (int)nth < p.share && plane < p.planes && (int)x * VECTOR < p.columns;
#if PAIRED
  found.ow = (int)x * VECTOR;
  found.from = plane * p.plane_elements;
#else
  found.ow = (int)over(x, p.by_inner);  // by_inner.n is inner / VECTOR
  found.from = plane * p.plane_elements + (int)(x - (u32)found.ow * p.by_inner.n) * VECTOR;
#endif
  found.to = plane * p.plane_windows + (i64)(found.od * p.Ho + found.oh0) * p.columns + (int)x * VECTOR;
  return found;
#endif
}

// A thread's next row of windows is so many rows of the result below its last one.
__device__ __forceinline__ int rows_apart(const Parameters &p) { return SPREAD ? p.share : 1; }

// The element at (d, h) of a column. p.pitch is the bytes of a row; one multiplication finds the address.
// The empty instruction keeps the compiler from finding the address again for each cell that may be outside.
__device__ __forceinline__ const Element *row_of(const Parameters &p, const Element *from, int d, int h) {
  const char *row = (const char *)from + (i64)(d * p.H + h) * p.pitch;
#ifdef __CUDACC_RTC__
  asm volatile("" : "+l"(row));
#endif
  return (const Element *)row;
}

// A word of so many bytes.
template <int bytes> struct Word;
template <> struct Word<1> { typedef unsigned char Type; };
template <> struct Word<2> { typedef unsigned short Type; };
template <> struct Word<4> { typedef u32 Type; };
template <> struct Word<8> { typedef uint2 Type; };
template <> struct Word<16> { typedef uint4 Type; };

// Numbers of neighbouring columns that are read or written at once: those of all columns, or 16 bytes.
template <class T>
struct Run {
  static constexpr int kCount = VECTOR * sizeof(T) < 16 ? VECTOR : 16 / sizeof(T), kBytes = kCount * sizeof(T);
  typedef typename Word<kBytes>::Type Type;
};

__device__ __forceinline__ Cells all_cells(Sum value) {
  Cells found;
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) found.at[v] = value;
  return found;
}

#if !PAIRED
// Cell m of a window's row, in all columns of the thread; `none` if the cell is not `there`. That is decided before
// halves are widened, as a word has several of them.
template <bool aligned>
__device__ __forceinline__ Cells cells_of(const Parameters &p, const Element *row, int m, bool there = true,
                                          Element none = 0) {
#if ADJACENT
  row += m;
#else
  row += (i64)m * p.step;
#endif
  Cells found;
  if (aligned) {
    Run<Element>::Type word;
    Element *each = (Element *)&word;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) each[v] = none;
    if (there) word = __ldg((const Run<Element>::Type *)row);
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) found.at[v] = widen(each[v]);
    return found;
  }
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) found.at[v] = widen(there ? __ldg(row + v) : none);
  return found;
}
#endif

#if !PAIRED && BATCH
// Calls body(cells, begin, count) for BATCH cells of a window's row at a time, from cell `begin` on. `count` of them
// exist; the others repeat the last cell: loads without a condition can all be issued before the first one is used.
template <bool aligned, class Body>
__device__ __forceinline__ void each_batch(const Parameters &p, const Element *row, int count, Body body) {
  Cells cells[BATCH];
  int begin = 0;
  for (; begin + BATCH <= count; begin += BATCH) {
#pragma unroll
    for (int m = 0; m < BATCH; ++m) cells[m] = cells_of<aligned>(p, row, begin + m);
    body(cells, begin, BATCH);
  }
  if (begin == count) return;
#pragma unroll
  for (int m = 0; m < BATCH; ++m) cells[m] = cells_of<aligned>(p, row, min(begin + m, count - 1));
  body(cells, begin, count - begin);
}
#endif

// Writes the results of all columns of the thread; these are aligned to 16 bytes.
template <bool aligned, class T>
__device__ __forceinline__ void put_all(T *to, const T *results) {
  typedef typename Run<T>::Type Several;
  if (aligned) {
#pragma unroll
    for (int v = 0; v < VECTOR / Run<T>::kCount; ++v) ((Several *)to)[v] = ((const Several *)results)[v];
    return;
  }
#pragma unroll
  for (int v = 0; v < VECTOR; ++v) to[v] = results[v];
}

template <class T>
__device__ __forceinline__ bool is_aligned(const T *at) {
  return (u64)at % Run<T>::kBytes == 0;
}
