// Boxes of windows of planes: a block copies the cells of a box to its tile in shared memory.
//
// A block computes a box of windows: all windows of p.share planes, or up to p.box_d × p.box_h × p.box_w windows of one
// plane. Its tile has the cells from the first to the last one of these windows on each axis, at most p.cells_d slices
// of p.cells_h rows. Rows are numbered through all slices and planes of the tile: slice · p.cells_h + row.
//
//     SEGMENTED  1: the tile consists of segments of p.segment_rows rows, either those of one slice or one row. Each
//                segment begins p.segment elements after the one before it. 0: the tile is one run of cells
//
// staging.h has the other options.
#pragma once

#include "staging.h"

struct Tile {
  unsigned char *bytes;
  i64 plane;       // the first one
  int planes;
  int od, oh, ow;  // the first window
  int windows_d, windows_h, windows_w;
  Span d, h, w;    // the cells of each plane
  int skip;        // elements from a 16-byte boundary to the first cell
};

// Where a segment begins in the tensor, counted from the tile's first cell, and whether the tile has its rows.
struct Segment {
  int at;
  bool exists;
};

__device__ __forceinline__ Segment segment_of(const Parameters &p, const Tile &tile, int nth) {
  const int row = nth * p.segment_rows, d = (int)over((u32)row, p.by_cells_h), h = row - d * p.cells_h;
  const Segment found = {(d * p.H + h) * p.W, d < tile.d.count && h < tile.h.count};
  return found;
}

// The position of the first cell of a row in the tile, in elements.
__device__ __forceinline__ int row_at(const Parameters &p, const Tile &tile, int row) {
#if SEGMENTED
  const int nth = (int)over((u32)row, p.by_segment_rows);
  const int skip = (tile.skip + segment_of(p, tile, nth).at) & (VECTOR - 1);
  return nth * p.segment + skip + (row - nth * p.segment_rows) * p.W;
#else
  return tile.skip + row * p.W;
#endif
}

// Copies the cells to the tile, in vectors of 16 bytes. The vectors may have other elements of the tensor before the
// first cell and after the last one of a segment; `from` is the first cell's element in the tensor.
__device__ __forceinline__ void copy_cells(const Parameters &p, const Tile &tile, i64 from) {
#if SEGMENTED
  const int rows = p.segment_rows > 1 ? tile.h.count : 1, run = (rows - 1) * p.W + tile.w.count;
  const int vectors = p.segments * (int)p.by_vectors.n;
#else
  const int rows = (tile.planes - 1) * p.D * p.H + (tile.d.count - 1) * p.H + tile.h.count;
  const int run = (rows - 1) * p.W + tile.w.count, vectors = (tile.skip + run + VECTOR - 1) / VECTOR;
#endif
#pragma unroll 1
  for (int begin = 0; begin < vectors; begin += THREADS * AHEAD) {
    uint4 found[AHEAD];
    u32 loaded = 0;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int nth = begin + i * THREADS + (int)threadIdx.x;
#if SEGMENTED
      const int segment = (int)over((u32)nth, p.by_vectors), v = nth - segment * (int)p.by_vectors.n;
      const Segment part = segment_of(p, tile, segment);
      const int skip = (tile.skip + part.at) & (VECTOR - 1);
      const i64 element = from + part.at - skip + v * VECTOR;
      const bool needed = nth < vectors && part.exists && v * VECTOR < skip + run;
#else
      const i64 element = from - tile.skip + nth * VECTOR;
      const bool needed = nth < vectors;
#endif
      const bool inside = element >= 0 && element + VECTOR <= p.elements;
      if (needed && inside) found[i] = *(const uint4 *)(p.x + element), loaded |= 1u << i;
      if (needed && !inside)  // a vector that crosses an end of the tensor
        for (int k = 0; k < VECTOR; ++k)
          if (element + k >= 0 && element + k < p.elements)
            *(Element *)(tile.bytes + byte_of(nth * VECTOR + k)) = __ldg(p.x + element + k);
    }
    // All lanes meet between loads and stores, so that the compiler issues all loads before the first store.
    __syncwarp();
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
      if (loaded >> i & 1) put_vector(tile.bytes, begin + i * THREADS + (int)threadIdx.x, found[i]);
  }
}

// Fills the tile of this block. All threads call it.
__device__ __forceinline__ Tile tile_of(const Parameters &p, unsigned char *bytes) {
  Tile tile;
  tile.bytes = bytes;
  u32 at = blockIdx.x, next = over(at, p.by_parts_w);
  tile.ow = (int)(at - next * p.by_parts_w.n) * p.box_w;
  at = next, next = over(at, p.by_parts_h);
  tile.oh = (int)(at - next * p.by_parts_h.n) * p.box_h;
  at = next, next = over(at, p.by_parts_d);
  tile.od = (int)(at - next * p.by_parts_d.n) * p.box_d;
  tile.plane = (i64)next * p.share;
  tile.planes = (int)min((i64)p.share, p.planes - tile.plane);
  tile.windows_d = min(p.box_d, p.Do - tile.od);
  tile.windows_h = min(p.box_h, p.Ho - tile.oh);
  tile.windows_w = min(p.box_w, p.Wo - tile.ow);
  if (p.share > 1) {
    tile.d.first = tile.h.first = tile.w.first = 0;
    tile.d.count = p.D, tile.h.count = p.H, tile.w.count = p.W;
  } else {
    tile.d = from_to(cells_d(p, tile.od), cells_d(p, tile.od + tile.windows_d - 1));
    tile.h = p.whole_h ? Span{0, p.H} : from_to(cells_h(p, tile.oh), cells_h(p, tile.oh + tile.windows_h - 1));
    tile.w = p.whole_w ? Span{0, p.W} : from_to(cells_w(p, tile.ow), cells_w(p, tile.ow + tile.windows_w - 1));
  }
  const i64 from = tile.plane * p.plane_elements + ((i64)tile.d.first * p.H + tile.h.first) * p.W + tile.w.first;
  tile.skip = (int)((u64)(p.x + from) / sizeof(Element) % VECTOR);
  copy_cells(p, tile, from);
  __syncthreads();
  return tile;
}

// Threads side by side take windows side by side: a thread takes the same columns in each of its rows of windows.
// Calls body(ow, first, step): window ow of the tile, in every `step`-th row of windows from row `first` on.
template <class Body>
__device__ __forceinline__ void each_column(const Parameters &p, const Tile &tile, Body body) {
  const int first = (int)over(threadIdx.x, p.by_lanes), lanes = (int)p.by_lanes.n, step = THREADS / lanes;
  if (first >= step) return;
  for (int ow = (int)threadIdx.x - first * lanes; ow < tile.windows_w; ow += lanes) body(ow, first, step);
}

// Calls body(plane, od, oh) for the rows of windows from row `first` on; these count from the tile's first.
template <class Body>
__device__ __forceinline__ void each_row(const Parameters &p, const Tile &tile, int first, int step, Body body) {
#pragma unroll 1
  for (int row = first; row < tile.planes * p.box_d * p.box_h; row += step) {
    const int slice = (int)over((u32)row, p.by_box_h), oh = row - slice * p.box_h;
    const int plane = (int)over((u32)slice, p.by_box_d), od = slice - plane * p.box_d;
    if (od < tile.windows_d && oh < tile.windows_h) body(plane, od, oh);
  }
}

// The element of the result for window (plane, od, oh, ow) of the tile.
__device__ __forceinline__ i64 result_of(const Parameters &p, const Tile &tile, int plane, int od, int oh, int ow) {
  const i64 row = ((tile.plane + plane) * p.Do + tile.od + od) * p.Ho + tile.oh + oh;
  return row * p.Wo + tile.ow + ow;
}

// Calls body(cells, m) for BATCH cells of a row of a window at a time: from cell m on. `at` is the row's first element
// in the tile, `count` its cells.
template <class Body>
__device__ __forceinline__ void each_batch(const Tile &tile, int at, int count, Body body) {
  for (int m = 0; m < (COLUMNS ? 1 : count); m += BATCH) {
    Sum cells[BATCH];
    if (PADDED && cells_to_gap(at + m) < BATCH) {
      load_cells<PADDED>(tile.bytes, at + m, count - m, true, cells);
      keep_order();  // else the compiler merges the two branches
    } else {
      load_cells<false>(tile.bytes, at + m, count - m, true, cells);
    }
    body(cells, m);
  }
}
