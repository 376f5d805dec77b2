// Maxima of windows with channels innermost, one axis after the other, as in maximum_axes.cu:
//
//     rows[d, h, ow, c]     the largest cell of a row of a window, in each row of a box
//     slices[d, oh, ow, c]  the largest of the rows of a window, in each slice of a box
//
// A block computes a box of up to p.box_d × p.box_h × p.box_w windows of p.channels neighbouring channels. Cells stay in
// memory, where neighbouring channels are side by side; the arrays are in shared memory. A thread compares VECTOR
// channels at once, 16 bytes.
//
//     VECTOR        1, or the channels in 16 bytes
//     SLICES_FIRST  0: windows have one slice, and there is no array of slices
#include "maximum.h"
#include "spans.h"

#define AHEAD 8  // cells that a thread loads together

struct Box {
  i64 from;        // the element of x at (image, 0, 0, 0, first channel)
  i64 image;
  int od, oh, ow;  // the first window
  int windows_d, windows_h, windows_w;
  int channel, channels;
  Span d, h;       // cells
};

// VECTOR neighbouring channels.
struct alignas(VECTOR * sizeof(Element)) Cells {
  Element at[VECTOR];
};

#if VECTOR > 1 && ELEMENT >= 2 && defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ void take_larger(Cells &best, const Cells &cells) {
  u32 *mine = (u32 *)best.at;
  const u32 *other = (const u32 *)cells.at;
#pragma unroll
  for (int i = 0; i < VECTOR / 2; ++i) {
#if ELEMENT == 2
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(mine[i]) : "r"(mine[i]), "r"(other[i]));
#else
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(mine[i]) : "r"(mine[i]), "r"(other[i]));
#endif
  }
}
#else
__device__ __forceinline__ void take_larger(Cells &best, const Cells &cells) {
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) best.at[i] = narrow(larger(widen(best.at[i]), widen(cells.at[i])));
}
#endif

template <bool aligned>
__device__ __forceinline__ Cells load(const Element *from) {
  if (aligned) return *(const Cells *)from;
  Cells found;
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) found.at[i] = from[i];
  return found;
}

// The largest of `count` cells, `step` elements apart, in each channel. The last loads repeat the last cell: loads
// without a condition can all be issued before the first one is used.
template <bool aligned>
__device__ __forceinline__ Cells largest_of(const Element *cells, int count, i64 step) {
  Cells best = load<aligned>(cells);
  for (int begin = 1; begin < count; begin += AHEAD) {
    Cells found[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) found[i] = load<aligned>(cells + min(begin + i, count - 1) * step);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) take_larger(best, found[i]);
  }
  return best;
}

__device__ __forceinline__ Box box_of(const Parameters &p) {
  Box box;
  u32 at = blockIdx.x, next = over(at, p.by_chunks);
  box.channel = (int)(at - next * p.by_chunks.n) * p.channels;
  box.channels = min(p.channels, p.inner - box.channel);
  at = next, next = over(at, p.by_parts_w);
  box.ow = (int)(at - next * p.by_parts_w.n) * p.box_w;
  at = next, next = over(at, p.by_parts_h);
  box.oh = (int)(at - next * p.by_parts_h.n) * p.box_h;
  at = next, next = over(at, p.by_parts_d);
  box.od = (int)(at - next * p.by_parts_d.n) * p.box_d;
  box.image = next;
  box.windows_d = min(p.box_d, p.Do - box.od);
  box.windows_h = min(p.box_h, p.Ho - box.oh);
  box.windows_w = min(p.box_w, p.Wo - box.ow);
  box.d = from_to(span_d(p, box.od), span_d(p, box.od + box.windows_d - 1));
  box.h = from_to(span_h(p, box.oh), span_h(p, box.oh + box.windows_h - 1));
  box.from = box.image * p.image_elements + box.channel;
  return box;
}

// The cells of a window's row, from its first one on: (d, h) count from those of the box.
__device__ __forceinline__ const Element *row_of(const Parameters &p, const Box &box, int d, int h, int w, int c) {
  const i64 cell = ((i64)(box.d.first + d) * p.H + box.h.first + h) * p.W + w;
  return p.x + box.from + cell * p.inner + c;
}

template <bool aligned>
__device__ __forceinline__ void compare_rows(const Parameters &p, const Box &box, Element *rows) {
  const int count = box.d.count * p.cells_h * p.box_w * (int)p.by_vectors.n;
#pragma unroll 1
  for (int nth = (int)threadIdx.x; nth < count; nth += THREADS) {
    u32 at = (u32)nth, next = over(at, p.by_vectors);
    const int c = (int)(at - next * p.by_vectors.n) * VECTOR;
    at = next, next = over(at, p.by_box_w);
    const int ow = (int)(at - next * p.by_box_w.n), d = (int)over(next, p.by_cells_h), h = (int)next - d * p.cells_h;
    if (ow >= box.windows_w || h >= box.h.count || c >= box.channels) continue;
    const Span w = span_w(p, box.ow + ow);
    ((Cells *)rows)[nth] = largest_of<aligned>(row_of(p, box, d, h, w.first, c), w.count, p.inner);
  }
}

__device__ __forceinline__ void compare_slices(const Parameters &p, const Box &box, const Element *rows,
                                               Element *slices) {
  const int width = p.box_w * p.channels, vectors = p.box_w * (int)p.by_vectors.n;
  const int count = box.d.count * p.box_h * vectors;
#pragma unroll 1
  for (int nth = (int)threadIdx.x; nth < count; nth += THREADS) {
    const u32 line = over((u32)nth, p.by_row_vectors), d = over(line, p.by_box_h);
    const int x = nth - (int)line * vectors, oh = (int)line - (int)d * p.box_h;
    if (oh >= box.windows_h) continue;
    const Span h = span_h(p, box.oh + oh);
    const int top = (int)d * p.cells_h + h.first - box.h.first;
    ((Cells *)slices)[nth] = largest_of<true>(rows + top * width + x * VECTOR, h.count, width);
  }
  __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS) maximum_channels(const Parameters p) {
  SHARED(arena);
  const Box box = box_of(p);
  Element *rows = (Element *)arena, *slices = (Element *)(arena + p.slices_from);
  if ((u64)p.x % sizeof(Cells) == 0)
    compare_rows<true>(p, box, rows);
  else
    compare_rows<false>(p, box, rows);
  __syncthreads();
  if (SLICES_FIRST) compare_slices(p, box, rows, slices);
  const int width = p.box_w * p.channels, count = p.box_d * p.box_h * width;
#pragma unroll 1
  for (int nth = (int)threadIdx.x; nth < count; nth += THREADS) {
    u32 at = (u32)nth, next = over(at, p.by_channels);
    const int c = (int)(at - next * p.by_channels.n);
    at = next, next = over(at, p.by_box_w);
    const int ow = (int)(at - next * p.by_box_w.n), od = (int)over(next, p.by_box_h), oh = (int)next - od * p.box_h;
    if (c >= box.channels || ow >= box.windows_w || oh >= box.windows_h || od >= box.windows_d) continue;
    const Span d = span_d(p, box.od + od), h = span_h(p, box.oh + oh), w = span_w(p, box.ow + ow);
    const int slice = d.first - box.d.first, row = h.first - box.h.first, x = ow * p.channels + c;
    Sum best;
    int i = 0;
    if (SLICES_FIRST) i = best_number(slices + (slice * p.box_h + oh) * width + x, d.count, p.box_h * width, best);
    const int j = best_number(rows + ((slice + i) * p.cells_h + row) * width + x, h.count, width, best);
    const int m = best_number(row_of(p, box, slice + i, row + j, w.first, c), w.count, (i64)p.inner, best);
    const i64 window = ((i64)(box.od + od) * p.Ho + box.oh + oh) * p.Wo + box.ow + ow;
    const i64 to = (box.image * p.image_windows + window) * p.inner + box.channel + c;
    p.out[to] = narrow(best);
#ifdef INDEX
    int place = i * p.place_d + j * p.place_h + m;
#if INDEX != 1
    place += (d.first * p.H + h.first) * p.W + w.first;
#endif
    p.places[to] = (Index)place;
#endif
  }
}
