// The gradient of maxima with disjoint windows and innermost channels: a block clears a box of the result, and its
// threads write the cells that windows name.
//
// A box is some slices, rows and columns of an image, and `chunk` of its channels. It is in shared memory until all its
// cells are written. A thread takes a window and a channel, and reads the index. If the index names a cell of the window
// in the box, the thread writes the gradient there. No other window has the cell, so threads share no sums, and no cell
// is written twice.
//
// If an index names a cell outside its window, no thread writes its gradient. So blocks count the gradients, and a
// scatter computes the image again if some are missing (two_passes.h). A block computes one of by_parts.n boxes of an
// image.
//
//     MERGED      which elements of a box are one run of the result: 0 channels of a cell, 1 cells of a row, 2 rows of a
//                 slice, 3 slices of an image
//     DEEP 1      images have more than one slice
#include "indices.h"
#include "warps.h"

#define VECTOR (16 / (int)sizeof(Element))
#define BATCH 4      // windows that a thread loads together; more take too many registers
#define RESIDENT 10  // blocks of a multiprocessor for which there are registers

// A part of an axis: its cells, and the windows that hold one of them.
struct Piece {
  int first, cells, first_window, windows;
  Divider by_cells, by_windows;
};

struct Box {
  Piece d, h, w;
  int channel, channels;  // the first, and how many
  u32 start;              // how many elements lie between the last vector's boundary and the image
};

// A window of a box, and a channel.
struct Window {
  int d, h, w, c;
  int q;   // of the image
  u32 at;  // element of grad, from the image on
  bool exists;
};

__device__ __forceinline__ Box box_of_block(const Parameters &p, u32 part, u32 start) {
  const Piece *pieces = (const Piece *)p.pieces;
  Box box;
  u32 rest = over(part, p.by_chunks);
  box.channel = (part - rest * p.by_chunks.n) * p.by_chunk.n;
  box.channels = min((int)p.by_chunk.n, p.channels - box.channel);
  part = rest, rest = over(part, p.by_pieces_w);
  box.w = pieces[part - rest * p.by_pieces_w.n];
  part = rest, rest = over(part, p.by_pieces_h);
  box.h = pieces[p.by_pieces_w.n + part - rest * p.by_pieces_h.n];
  box.d = pieces[p.by_pieces_w.n + p.by_pieces_h.n + rest];
  box.start = start;
  return box;
}

__device__ __forceinline__ int windows_of(const Parameters &p, const Box &box) {
  return box.d.windows * box.h.windows * box.w.windows * (int)p.by_chunk.n;
}

__device__ __forceinline__ Window window_of(const Parameters &p, const Box &box, u32 nth) {
  Window found;
  u32 at = nth, rest = over(at, p.by_chunk);
  found.c = box.channel + (at - rest * p.by_chunk.n);
  found.exists = found.c < p.channels;
  at = rest, rest = over(at, box.w.by_windows);
  found.w = box.w.first_window + (at - rest * box.w.by_windows.n);
  found.d = 0;
#if DEEP
  at = rest, rest = over(at, box.h.by_windows);
  found.h = box.h.first_window + (at - rest * box.h.by_windows.n);
  found.d = box.d.first_window + rest;
#else
  found.h = box.h.first_window + rest;
#endif
  found.q = (found.d * p.Ho + found.h) * p.Wo + found.w;
  found.at = (u32)found.q * p.channels + found.c;
  return found;
}

// The first element of the run that holds this element of the box; counts from the image.
__device__ __forceinline__ u32 first_of_run(const Parameters &p, const Box &box, int d, int h, int w) {
  const int of_d = MERGED < 3 ? d : box.d.first, of_h = MERGED < 2 ? h : box.h.first, of_w = MERGED ? box.w.first : w;
  return ((of_d * p.H + of_h) * p.W + of_w) * p.channels + box.channel;
}

__device__ __forceinline__ bool holds(int2 span, int cell) { return (u32)(cell - span.x) < (u32)span.y; }

// Where the cell that a window names is in shared memory; -1 if it is not a cell of the window, or not of the box.
__device__ __forceinline__ int place_of(const Parameters &p, const Box &box, const Window &window, Index index) {
  const int named = cell_of(index, window.q, p), cell = max(named, 0);
  const u32 line = over(cell, p.by_w), slice = DEEP ? over(line, p.by_h) : 0;
  const int w = cell - line * p.by_w.n, h = line - slice * p.by_h.n, d = slice;
  const u32 i = d - box.d.first, j = h - box.h.first, k = w - box.w.first;
  if (named < 0 || i >= (u32)box.d.cells) return -1;
  if ((MERGED < 3 && j >= (u32)box.h.cells) || (MERGED < 2 && k >= (u32)box.w.cells)) return -1;
  const int2 *spans = (const int2 *)p.spans;  // first cell and number of cells, for the windows of each axis
  if (DEEP && !holds(spans[window.d], d)) return -1;
  if (!holds(spans[p.Do + window.h], h) || !holds(spans[p.Do + p.Ho + window.w], w)) return -1;
  const u32 first = first_of_run(p, box, d, h, w);
  u32 run = MERGED < 3 ? i : 0;
  if (MERGED < 2) run = run * box.h.cells + j;
  if (MERGED < 1) run = run * box.w.cells + k;
  const u32 to = (u32)cell * p.channels + window.c;
  return run * p.by_pitch.n * VECTOR + (box.start + first) % VECTOR + to - first;
}

// Calls body(place, element, run_begin, run_end) for each vector of the box: where it is in shared memory and in the
// result, and the elements that it may write. A run of the box begins in shared memory at the same distance from a
// vector's boundary as in the result.
template <class Body>
__device__ __forceinline__ void each_vector(const Parameters &p, const Box &box, Body body) {
  int runs = 1, size = box.channels;
  MERGED < 1 ? runs *= box.w.cells : size *= box.w.cells;
  MERGED < 2 ? runs *= box.h.cells : size *= box.h.cells;
  MERGED < 3 ? runs *= box.d.cells : size *= box.d.cells;
  const int vectors = runs * p.by_pitch.n;
#pragma unroll 2
  for (int v = threadIdx.x; v < vectors; v += THREADS) {
    u32 rest = over(v, p.by_pitch), at;
    const int nth = v - rest * p.by_pitch.n;
    int d = 0, h = 0, w = 0;
    if (MERGED < 1) at = rest, rest = over(at, box.w.by_cells), w = box.w.first + at - rest * box.w.by_cells.n;
    if (MERGED < 2) at = rest, rest = over(at, box.h.by_cells), h = box.h.first + at - rest * box.h.by_cells.n;
    if (MERGED < 3) d = box.d.first + rest;
    const int first = first_of_run(p, box, d, h, w), skip = (box.start + first) % VECTOR;
    body(v * VECTOR, first - skip + nth * VECTOR, first, first + size);
  }
}

// Writes a vector of the result; only those of its elements that are in its run.
__device__ __forceinline__ void write_vector(Element *out, int at, int begin, int end, const Element *from) {
  if (at >= begin && at + VECTOR <= end) {
    *(uint4 *)(out + at) = *(const uint4 *)from;
    return;
  }
#pragma unroll
  for (int i = 0; i < VECTOR; ++i)
    if (at + i >= begin && at + i < end) out[at + i] = from[i];
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) scatter_disjoint(const Parameters p) {
  let_next_launch_start();
  SHARED(arena);
  __shared__ int total;
  const u32 unit = over(blockIdx.x, p.by_parts);
  const Element *grad = p.grad + (i64)unit * p.plane_windows * p.channels;
  const Index *indices = p.indices + (i64)unit * p.plane_windows * p.channels;
  Element *out = p.out + (i64)unit * p.plane_elements, *kept = (Element *)arena;
  const Box box =
      box_of_block(p, blockIdx.x - unit * p.by_parts.n, (u32)((u64)out / sizeof(Element) % VECTOR));
  const int windows = windows_of(p, box);
  if (threadIdx.x == 0) total = 0;

  Index index[BATCH];
  Element gradient[BATCH];
  Window window[BATCH];
  auto load = [&](int from) {
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int nth = from + i * THREADS + threadIdx.x;
      window[i].exists = false;
      if (nth < windows) window[i] = window_of(p, box, nth);
      if (window[i].exists) index[i] = indices[window[i].at], gradient[i] = grad[window[i].at];
    }
  };
  load(0);  // now, so that it arrives while the block clears its box
  each_vector(p, box, [&](int place, int, int, int) { *(uint4 *)(kept + place) = make_uint4(0, 0, 0, 0); });
  __syncthreads();

  int added = 0;
#pragma unroll 1
  for (int from = 0; from < windows; from += BATCH * THREADS) {
    if (from) load(from);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (!window[i].exists) continue;
      const int place = place_of(p, box, window[i], index[i]);
      if (place < 0) continue;
      ++added;
      kept[place] = narrow((Sum)0 + widen(gradient[i]));  // a negative zero becomes positive, as in a sum
    }
  }
  added = sum_of_warp(added);
  if (threadIdx.x % 32 == 0 && added) atomicAdd(&total, added);
  __syncthreads();
  if (threadIdx.x == 0) p.counts[blockIdx.x] = total;
  each_vector(p, box, [&](int place, int at, int begin, int end) { write_vector(out, at, begin, end, kept + place); });
}
