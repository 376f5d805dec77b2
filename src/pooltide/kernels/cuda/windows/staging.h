// Cells in shared memory: tile.h and boxes.h copy them there 16 bytes at a time, and threads take them by rows.
//
//     STEADY     1: all axes have windows of equal length and stride; 0: their cells are in tables (spans.h)
//     PADDED     1: a gap follows each 128 bytes of the tile, as neighbouring windows would begin in the same banks
//                of shared memory
//     COLUMNS    the most cells of a window on the w axis, where threads unroll them; 0: too many for that
//     CLIPPED_W  1: some windows have fewer cells inside the w axis than others
//     NONE       the value that replaces a cell which a window does not have
#pragma once

#include "spans.h"

#define VECTOR (16 / (int)sizeof(Element))
#define LINE 128                                             // bytes of all banks
#define GAP (int)(sizeof(Element) < 4 ? 4 : sizeof(Element))  // bytes that keep elements aligned
#define AHEAD 8                                              // vectors that a thread loads together
#define BATCH (COLUMNS > 0 ? COLUMNS : 8)                    // cells of a row that a thread takes together

static_assert(BATCH * (int)sizeof(Element) <= LINE, "more than one gap is among the cells of a batch");

#if STEADY
__device__ __forceinline__ Span steady_span(int o, int length, int k, int s, int padding) {
  const int begin = o * s - padding, first = max(begin, 0);
  const Span found = {first, min(begin + k, length) - first};
  return found;
}
__device__ __forceinline__ Span cells_d(const Parameters &p, int o) { return steady_span(o, p.D, p.k_d, p.s_d, p.p_d); }
__device__ __forceinline__ Span cells_h(const Parameters &p, int o) { return steady_span(o, p.H, p.k_h, p.s_h, p.p_h); }
__device__ __forceinline__ Span cells_w(const Parameters &p, int o) { return steady_span(o, p.W, p.k_w, p.s_w, p.p_w); }
#else
__device__ __forceinline__ Span cells_d(const Parameters &p, int o) { return span_d(p, o); }
__device__ __forceinline__ Span cells_h(const Parameters &p, int o) { return span_h(p, o); }
__device__ __forceinline__ Span cells_w(const Parameters &p, int o) { return span_w(p, o); }
#endif

// The byte of the tile at which an element is.
__device__ __forceinline__ u32 byte_of(int element) {
  const u32 byte = (u32)element * (u32)sizeof(Element);
  return PADDED ? byte + byte / LINE * GAP : byte;
}

// Writes 16 bytes to the tile, in pieces that are aligned after a gap.
__device__ __forceinline__ void put_vector(unsigned char *tile, int nth, const uint4 &vector) {
  unsigned char *to = tile + byte_of(nth * VECTOR);
#if !PADDED
  *(uint4 *)to = vector;
#elif ELEMENT == 1
  ((uint2 *)to)[0] = make_uint2(vector.x, vector.y), ((uint2 *)to)[1] = make_uint2(vector.z, vector.w);
#else
  u32 *words = (u32 *)to;
  words[0] = vector.x, words[1] = vector.y, words[2] = vector.z, words[3] = vector.w;
#endif
}

// How many cells there are from element `first` of the tile to the next gap.
__device__ __forceinline__ int cells_to_gap(int first) {
  const u32 line = LINE / sizeof(Element);
  return (int)(line - (u32)first % line);
}

// Loads BATCH neighbouring cells of a row, from element `first` of the tile on, of which `left` exist, or none if the
// window does not have the row. At most one gap is among them, so an address is before the gap or after it.
template <bool gap>
__device__ __forceinline__ void load_cells(const unsigned char *tile, int first, int left, bool row_exists,
                                           Sum (&cells)[BATCH]) {
  const unsigned char *before = tile + byte_of(first), *after = before + GAP;
#pragma unroll
  for (int k = 0; k < BATCH; ++k) {
    const bool exists = row_exists && ((COLUMNS && !CLIPPED_W) || k == 0 || k < left);
    const Element *cell = (const Element *)(gap && k >= cells_to_gap(first) ? after : before) + k;
    cells[k] = exists ? widen(*cell) : NONE;
  }
}
