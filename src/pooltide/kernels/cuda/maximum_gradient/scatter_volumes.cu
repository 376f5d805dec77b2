// The gradient of maxima of planes with many slices: every window adds its gradient to the cell that its index
// names, in ascending order of the windows.
//
// A warp owns a band of rows of some slices, and walks through the slices. It keeps in shared memory as many slices
// of its band as a window has, in a ring, and takes the windows slice by slice. When no later window holds a slice,
// it writes the slice and clears its place. So a warp reads few windows that another warp reads, too; a band of
// scatter_planes.cu would read the windows of all slices around it.
//
// A plane is plane_cells · inner elements, as in scatter_planes.cu. A warp computes one of `parts` of a plane, and
// counts the gradients that it added. An index that names a cell outside its window may not be found; then
// scatter_planes.cu computes the plane again (two_passes.h).
//
//     INNER 1     inner may be more than 1
//     DISJOINT 1  windows have no cell in common. The kernel takes only indices inside their windows, so no two
//                 gradients are for the same cell
#include "ordered.h"

struct Piece {
  int begin, size;            // elements of a slice: the band
  int first, end;             // slices
  int first_window, windows;  // slices of windows that may name its cells
  int from, count;            // elements of the first of them
};

__device__ __forceinline__ int add_piece(const Parameters &p, i64 plane, const Piece &piece, Sum *sums, int lane) {
  Element *out = p.out + plane * p.plane_elements + piece.begin;
  const u32 out_at = (u32)((u64)out / sizeof(Element));
  int written = piece.first, slot = 0;  // the first slice not yet written to the result, and its place in the ring
  int held = 0;                         // slices from `written` on that the current windows have
  int added = 0;

  // The sums of a slice begin at the same distance from a vector boundary as the slice in the result.
  auto skip_of = [&](int slice) { return (int)((out_at + (u32)slice * p.slice_elements) % VECTOR); };
  auto write_until = [&](int end) {
    __syncwarp();
    for (; written < end; ++written) {
      Sum *sums_of = sums + slot * p.pitch;
      const int skip = skip_of(written);
      flush(sums_of, skip, piece.size, out + (i64)written * p.slice_elements, lane);
      __syncwarp();
      clear(sums_of, skip + piece.size, lane);
      __syncwarp();  // a ring of one slice is flushed again
      slot = slot + 1 == p.ring ? 0 : slot + 1;
    }
  };

  clear(sums, p.ring * p.pitch, lane);
  auto next_slice = [&](int r) {
    if (r >= piece.windows) return;
    const int *span = p.slices + 2 * (piece.first_window + r);
    write_until(max(span[0], piece.first));
    held = min(span[1], piece.end) - written;
  };
  const Ranges ranges = {piece.windows, piece.from, piece.count, p.slice_windows};
  each_window(p, plane, ranges, lane, next_slice, [&](const Taken &taken, Element gradient, Index index) {
    int local = -1, cell = 0;
#if INNER
    const u32 q = over(taken.e, p.by_inner), c = taken.e - q * p.by_inner.n;
#else
    const u32 q = taken.e, c = 0;
#endif
    if (taken.live) {
      cell = cell_of(index, q, p);
      const u32 slice = over(max(cell, 0), p.by_slice), nth = slice - written;
      const u32 element = (max(cell, 0) - slice * p.by_slice.n) * (INNER ? p.by_inner.n : 1) + c - piece.begin;
      bool mine = cell >= 0 && (int)nth < held && nth < (u32)p.ring && element < (u32)piece.size;
#if DISJOINT
      mine = mine && holds(p, q, cell);
#endif
      if (mine) {
        const u32 at = slot + nth;
        local = (int)((at >= (u32)p.ring ? at - p.ring : at) * p.pitch + skip_of(slice) + element);
        ++added;
      }
    }
#if DISJOINT
    if (local >= 0) sums[local] = (Sum)0 + widen(gradient);
#else
    add_windows_of_lanes(p, sums, local, q, cell, widen(gradient), lane);
#endif
  });
  write_until(piece.end);
  return added;
}

extern "C" __global__ void __launch_bounds__(THREADS) scatter_volumes(const Parameters p) {
  let_next_launch_start();
  SHARED(arena);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 which = (i64)blockIdx.x * (THREADS / 32) + warp;
  if (which >= p.planes * p.parts) return;
  const i64 plane = which / p.parts;
  const int *facts = p.pieces + 8 * (int)(which % p.parts);
  const Piece piece = {facts[0], facts[1], facts[2], facts[3], facts[4], facts[5], facts[6], facts[7]};
  const int added = sum_of_warp(add_piece(p, plane, piece, (Sum *)(arena + (i64)warp * p.warp_bytes), lane));
  if (lane == 0) p.counts[which] = added;
}
