// The gradient of maxima where few windows hold a cell: a block clears a box of the result, and its threads write the
// cells that windows name.
//
// A box is some slices, rows and columns of an image, and `chunk` of its channels. It is in shared memory until all its
// cells are written. A thread takes a window that has cells in the box, and reads its index. If the index names a cell
// in the box, the thread compares the indices of the other windows that hold the cell. The thread of the first window
// that names the cell adds all gradients for it, in ascending order of the windows, and writes the sum. So threads share
// no sums, and no cell is written twice.
//
// If an index names a cell outside its window, no thread adds its gradient. So blocks count the gradients, and a
// scatter computes the image again if some are missing (two_passes.h). A block computes one of by_parts.n boxes of an
// image. For planes, an image is a plane with one channel.
//
//     MERGED      which elements of a box are one run of the result: 0 channels of a cell, 1 cells of a row, 2 rows of a
//                 slice, 3 slices of an image
//     HELD        the most windows that hold a cell; 1: windows are disjoint
//     DEEP 1      images have more than one slice
//     INNER 1     images have more than one channel
#include "indices.h"
#include "warps.h"

#define VECTOR (16 / (int)sizeof(Element))
#define BATCH (HELD == 1 ? 4 : 2)        // windows that a thread loads together; more take too many registers
#define AHEAD (HELD < 8 ? HELD : 8)      // windows that a thread compares together
#define RESIDENT (HELD == 1 ? 10 : 8)    // blocks of a multiprocessor for which there are registers

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

// A window of a box.
struct Window {
  int d, h, w, c;
  int q;   // of the image
  u32 at;  // element of grad, from the image on
  bool exists;
};

// A cell of a box.
struct Cell {
  int cell, d, h, w;  // of the image
  int place;          // element of the box in shared memory; -1: the box does not have the cell
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
  return box.d.windows * box.h.windows * box.w.windows * (int)(INNER ? p.by_chunk.n : 1);
}

__device__ __forceinline__ Window window_of(const Parameters &p, const Box &box, u32 nth) {
  Window found;
  found.exists = true, found.c = 0;
#if INNER
  u32 at = nth, rest = over(at, p.by_chunk);
  found.c = box.channel + (at - rest * p.by_chunk.n);
  found.exists = found.c < p.channels;
  at = rest, rest = over(at, box.w.by_windows);
#else
  u32 at = nth, rest = over(at, box.w.by_windows);
#endif
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

// The cell that a window names, if it is a cell of the window.
__device__ __forceinline__ Cell cell_of_window(const Parameters &p, const Box &box, const Window &window, Index index) {
  Cell found;
  found.place = -1;
  found.cell = cell_of(index, window.q, p);
  const u32 line = over(max(found.cell, 0), p.by_w), slice = DEEP ? over(line, p.by_h) : 0;
  found.w = max(found.cell, 0) - line * p.by_w.n, found.h = line - slice * p.by_h.n, found.d = slice;
  const u32 i = found.d - box.d.first, j = found.h - box.h.first, k = found.w - box.w.first;
  if (found.cell < 0 || i >= (u32)box.d.cells) return found;
  if ((MERGED < 3 && j >= (u32)box.h.cells) || (MERGED < 2 && k >= (u32)box.w.cells)) return found;
  const int2 *spans = (const int2 *)p.spans;  // first cell and number of cells, for the windows of each axis
  if (DEEP && !holds(spans[window.d], found.d)) return found;
  if (!holds(spans[p.Do + window.h], found.h) || !holds(spans[p.Do + p.Ho + window.w], found.w)) return found;
  const u32 first = first_of_run(p, box, found.d, found.h, found.w);
  u32 run = MERGED < 3 ? i : 0;
  if (MERGED < 2) run = run * box.h.cells + j;
  if (MERGED < 1) run = run * box.w.cells + k;
  const u32 to = (u32)found.cell * p.channels + window.c;
  found.place = run * p.by_pitch.n * VECTOR + (box.start + first) % VECTOR + to - first;
  return found;
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

#if HELD > 1
// Adds to `sum` the gradients of the later windows that name the cell; returns false if an earlier window names it.
// `grad` and `indices` begin with the image and the channel.
__device__ __forceinline__ bool add_others(const Parameters &p, const Element *grad, const Index *indices,
                                           const Cell &cell, int q, Index index, Sum *sum) {
  const int2 *held = (const int2 *)p.held;  // first window and number of windows, for the cells of each axis
  const int2 of_d = DEEP ? held[cell.d] : make_int2(0, 1), of_h = held[p.D + cell.h], of_w = held[p.D + p.H + cell.w];
  int next = (of_d.x * p.Ho + of_h.x) * p.Wo + of_w.x, h = 0, w = 0;
#pragma unroll 1
  for (int left = of_d.y * of_h.y * of_w.y; left > 0; left -= AHEAD) {
    Index found[AHEAD];
    int which[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      which[i] = i < left ? next : q;
      if (i < left) found[i] = indices[(u32)next * p.channels];
      ++next;
      if (++w == of_w.y) {
        w = 0, next += p.Wo - of_w.y;
        if (++h == of_h.y) h = 0, next += (p.Ho - of_h.y) * p.Wo;
      }
    }
    u32 same = 0;  // bit i: a later window which[i] names the cell
    bool earlier = false;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      if (which[i] == q) continue;
#if INDEX == 1
      if (cell_of(found[i], which[i], p) != cell.cell) continue;
#else
      if (found[i] != index) continue;
#endif
      which[i] < q ? earlier = true : same |= 1u << i;
    }
    if (earlier) return false;
    if (!same) continue;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
      if (same >> i & 1) *sum += widen(grad[(u32)which[i] * p.channels]);
  }
  return true;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) scatter_named(const Parameters p) {
  let_next_launch_start();
  SHARED(arena);
  __shared__ int total;
  const u32 unit = over(blockIdx.x, p.by_parts);
  const Element *grad = p.grad + (i64)unit * p.plane_windows * p.channels;
  const Index *indices = p.indices + (i64)unit * p.plane_windows * p.channels;
  Element *out = p.out + (i64)unit * p.plane_elements, *sums = (Element *)arena;
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
  each_vector(p, box, [&](int place, int, int, int) { *(uint4 *)(sums + place) = make_uint4(0, 0, 0, 0); });
  __syncthreads();

  int added = 0;
#pragma unroll 1
  for (int from = 0; from < windows; from += BATCH * THREADS) {
    if (from) load(from);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (!window[i].exists) continue;
      const Cell cell = cell_of_window(p, box, window[i], index[i]);
      if (cell.place < 0) continue;
      ++added;
      Sum sum = (Sum)0 + widen(gradient[i]);
#if HELD > 1
      const int c = window[i].c;
      if (!add_others(p, grad + c, indices + c, cell, window[i].q, index[i], &sum)) continue;
#endif
      sums[cell.place] = narrow(sum);
    }
  }
  added = sum_of_warp(added);
  if (threadIdx.x % 32 == 0 && added) atomicAdd(&total, added);
  __syncthreads();
  if (threadIdx.x == 0) p.counts[blockIdx.x] = total;
  each_vector(p, box, [&](int place, int at, int begin, int end) { write_vector(out, at, begin, end, sums + place); });
}
