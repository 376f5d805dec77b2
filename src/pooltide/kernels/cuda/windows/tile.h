// Windows of planes from shared memory: a block copies neighbouring cells to its tile, and each thread takes whole
// windows from the tile. So threads read memory in order, however far their windows are apart.
//
// A block computes consecutive windows: all windows of p.share planes, or some windows of one plane. Its tile has all
// cells of these windows, and the cells between them. p.parts has (first window, windows, first cell, cells) for each
// part of a plane.
//
//     WHOLE      1: a block takes whole planes, and there is no table of parts
//     ROWS       how many rows threads unroll, with COLUMNS cells each
//     CLIPPED_H  1: some windows have fewer rows than others, or the number of rows is not a multiple of ROWS
//
// staging.h has the other options.
#pragma once

#include "staging.h"

struct Tile {
  const unsigned char *bytes;
  int windows, first_window;  // of the block; the first one counts from its plane's first
  int origin;                 // where the first cell of the first plane would be, in elements
  i64 to;                     // the first window among all windows
};

// Copies `cells` elements to the tile, from element `from` of the tensor on. Returns the position of the first one in
// the tile, in elements: its distance from a 16-byte boundary, which is the same as in the tensor. The copied vectors
// may have other elements of the tensor before the first and after the last one.
__device__ __forceinline__ int copy_cells(const Parameters &p, unsigned char *tile, i64 from, int cells) {
  const int skip = (int)((u64)(p.x + from) / sizeof(Element) % VECTOR), end = skip + cells;
  const i64 base = from - skip;  // of the first vector
  const int vectors = (end + VECTOR - 1) / VECTOR;
  const int first = base < 0, last = base + (i64)vectors * VECTOR > p.elements ? vectors - 1 : vectors;
  const Element *source = p.x + from - skip;
#pragma unroll 1
  for (int begin = first; begin < last; begin += THREADS * AHEAD) {
    // A load that depends on no condition is issued early, so threads beyond the end load the last vector. All lanes
    // meet between loads and stores, so that the compiler issues all loads before the first store; __ldg would let it
    // move loads behind stores.
    const int v = begin + (int)threadIdx.x;
    uint4 found[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) found[i] = ((const uint4 *)source)[min(v + i * THREADS, last - 1)];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
      if (v + i * THREADS < last) put_vector(tile, v + i * THREADS, found[i]);
  }
  // The vectors that cross an end of the tensor.
  const int t = (int)threadIdx.x;
  auto put = [&](int element) {
    if (t < VECTOR && element >= skip && element < end) *(Element *)(tile + byte_of(element)) = __ldg(source + element);
  };
  if (first) put(t);
  if (last < vectors) put(last * VECTOR + t);
  return skip;
}

// Fills the tile of this block. All threads call it.
__device__ __forceinline__ Tile tile_of(const Parameters &p, unsigned char *bytes) {
#if WHOLE
  const i64 plane = (i64)blockIdx.x * p.share;
  const int4 part = make_int4(0, p.plane_windows, 0, p.plane_elements);
#else
  const u32 nth = over(blockIdx.x, p.by_parts);
  const i64 plane = nth;
  const int4 part = ((const int4 *)p.parts)[blockIdx.x - nth * p.by_parts.n];
#endif
  const int more = WHOLE ? (int)min((i64)p.share, p.planes - plane) - 1 : 0;  // planes after the first
  const i64 from = plane * p.plane_elements + part.z;
  const int skip = copy_cells(p, bytes, from, part.w + more * p.plane_elements);
  __syncthreads();
  Tile tile;
  tile.bytes = bytes;
  tile.windows = part.y + more * p.plane_windows, tile.first_window = part.x;
  tile.origin = skip - part.z;
  tile.to = plane * p.plane_windows + part.x;
  return tile;
}

struct Window {
  int od, oh, ow;
  Span d, h, w;
  int first;  // cell of its plane
  int at;     // where that is in the tile, in elements
};

// The window `q` of the block.
__device__ __forceinline__ Window window_of(const Parameters &p, const Tile &tile, int q) {
  Window found;
  u32 at = (u32)(tile.first_window + q), next = over(at, p.by_wo);
  found.ow = (int)(at - next * p.by_wo.n);
  at = next, next = over(at, p.by_ho);
  found.oh = (int)(at - next * p.by_ho.n);
  at = next, next = over(at, p.by_do);
  found.od = (int)(at - next * p.by_do.n);
  found.d = cells_d(p, found.od), found.h = cells_h(p, found.oh), found.w = cells_w(p, found.ow);
  found.first = (found.d.first * p.H + found.h.first) * p.W + found.w.first;
  found.at = (int)next * p.plane_elements + found.first + tile.origin;
  return found;
}

// Loads BATCH cells of ROWS rows each, from row j of the window on.
template <bool gap>
__device__ __forceinline__ void load_rows(const Parameters &p, const Tile &tile, const Window &window, int first, int j,
                                          int m, Sum (&cells)[ROWS][BATCH]) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const bool row_exists = !CLIPPED_H || r == 0 || j + r < window.h.count;
    load_cells<gap>(tile.bytes, first + r * p.W, window.w.count - m, row_exists, cells[r]);
  }
}

// Calls body(cells, at, i, j, m) for BATCH cells of the window at a time, in ascending order: from cell m of row j of
// slice i on, which is the element `at` of the tile. The cells of ROWS rows are loaded together.
template <class Body>
__device__ __forceinline__ void each_batch(const Parameters &p, const Tile &tile, const Window &window, Body body) {
#pragma unroll 1
  for (int i = 0; i < window.d.count; ++i) {
#pragma unroll 1
    for (int j = 0; j < window.h.count; j += ROWS) {
      const int row = window.at + (i * p.H + j) * p.W;
      for (int m = 0; m < (COLUMNS ? 1 : window.w.count); m += BATCH) {
        Sum cells[ROWS][BATCH];
        bool gap = false;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) gap |= PADDED && cells_to_gap(row + r * p.W + m) < BATCH;
        if (gap) {
          load_rows<PADDED>(p, tile, window, row + m, j, m, cells);
          keep_order();  // else the compiler merges the two branches
        } else {
          load_rows<false>(p, tile, window, row + m, j, m, cells);
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) body(cells[r], row + r * p.W + m, i, j + r, m);
      }
    }
  }
}
