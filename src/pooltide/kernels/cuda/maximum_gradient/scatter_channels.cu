// The gradient of maxima of images whose channels are innermost: every window adds its gradient to the cell
// that its index names, in ascending order of the windows.
//
// A lane owns a channel, so lanes never name the same element. A warp holds a tile of cells, a box of the
// image, for LANES channels in shared memory, and takes the windows that may name its cells one after another.
// A block computes LANES channels of an image, or one of `parts` of them, tile by tile, in two passes (two_passes.h).
//
// With WALK a tile may have more slices than the warp holds: the warp walks through the slices of windows, and holds
// a ring of p.ring slices, as many as a window has. When no later window names a slice, the warp writes the slice and
// clears its place. An index far from its window may name another tile, or a slice that the warp does not hold. Then
// the warp does not add the gradient, and the second pass is needed. In that pass a warp takes p.ring slices at a time.
//
// With fewer than 32 LANES a warp has several groups of lanes, which own the same channels and share a larger tile.
// They take rows of windows in turn, and each group is p.lag columns behind the group of the row before. Windows that
// are p.lag columns apart have no column of cells in common. So no two groups add to a cell in the same step, and
// every cell gets its gradients in order, if indices name columns of their windows. Others are left to the second
// pass, in which only the first group adds.
//
//     DEEP    1: images have more than one slice
//     LINEAR  1: tiles are contiguous: whole rows of a slice, or whole slices; with WALK: whole rows
//     PACK    channels that a lane writes at once, where all LANES are there
//     LANES   32, or with WALK 16 or 8: the channels of a tile
//     ONES    1: rows may have one column
//     AHEAD   windows whose gradients and indices are loaded together; a divisor of LANES
//     WALK    1: a warp walks through the slices of its tile
#include "indices.h"
#include "two_passes.h"

#define GROUPS (32 / LANES)
#define BLOCKS (WALK ? 4 : 6)  // of THREADS on a multiprocessor: as few registers as they can have without spilling

struct Box {
  int d, h, w, nd, nh, nw;  // the first of each axis, and how many
};

// The slices of a tile that a warp holds.
struct Held {
  int first, count;  // slices of the image
  int slot;          // the place of the first one in the ring
  int pitch;         // cells from slice to slice
};

// x / by.n, if by.n is at least 2 or ONES is 1. A larger x never gives a smaller number, even from 2^31 on.
__device__ __forceinline__ u32 part(u32 x, const Divider &by) {
  return ONES ? over(x, by) : __umulhi(x, by.magic) >> by.shift;
}

// Where the sums of a cell are: which of the tile's cells in shared memory; -1 if the warp does not hold the cell.
// `cell` may be outside the plane. A plane has at most 2^30 cells, so the slice and the row of such a cell are
// not of the plane, either. With GROUPS only `columns` columns from `first` on count.
__device__ __forceinline__ int place_of(const Parameters &p, u32 cell, const Box &tile, const Held &held, bool inside,
                                        int first, u32 columns, u32 minus_slice, u32 minus_row) {
#if LINEAR && !WALK
  const u32 local = cell - ((tile.d * p.H + tile.h) * p.W + tile.w);
  return inside && local < (u32)(held.count * tile.nh * tile.nw) ? (int)local : -1;
#else
#if DEEP
  const u32 slice = part(cell, p.by_slice), rest = cell + slice * minus_slice;
#else
  const u32 slice = 0, rest = cell;
#endif
  u32 nth = slice - held.first;
  inside = inside && nth < (u32)held.count;
#if LINEAR
  const u32 in_slice = rest - tile.h * p.W;
  inside = inside && in_slice < (u32)(tile.nh * tile.nw);
#else
  const u32 line = part(rest, p.by_w), column = rest + line * minus_row;
  const u32 i_h = line - tile.h, i_w = column - tile.w, in_slice = i_h * tile.nw + i_w;
  inside = inside && i_h < (u32)tile.nh && i_w < (u32)tile.nw;
#if GROUPS > 1
  inside = inside && column - first < columns;
#endif
#endif
#if WALK
  nth += held.slot;
  nth = min(nth, nth - p.ring);  // the one that is not negative
#endif
  return inside ? (int)(nth * held.pitch + in_slice) : -1;
#endif
}

// Adds the gradients of the windows in `windows` that name cells in `tile`; returns how many this lane added.
// The sums of the lane begin `sums` bytes after `arena`. `starts` has the first cell of each column of windows. `held`
// has the slices that the warp holds. With WALK, before(d) is called before the windows of slice d, and may change
// `held`. `everything` true: indices may name any cell.
template <class Before>
__device__ __forceinline__ int add_windows(const Parameters &p, i64 image, int c, const Box &tile, const Box &windows,
                                           unsigned char *arena, u32 sums, const int *starts, bool everything,
                                           const Held &held, Before before) {
  const int channels = p.channels, lane = threadIdx.x % LANES, group = threadIdx.x % 32 / LANES;
  const int ranges = WALK ? windows.nd : 1, rows = windows.nh * (WALK ? 1 : windows.nd);  // of a range
  if (ranges == 0 || rows == 0 || windows.nw == 0) return 0;
  // In step n, group g takes window n - g * lag of its rows, each of which counts as `period` windows.
  const int turns = everything ? 1 : GROUPS, lag = GROUPS > 1 ? min(p.lag, windows.nw) : 0;
  const int period = max(windows.nw, turns * lag), rounds = (rows - 1) / turns;
  const int steps = rounds * period + (rows - 1 - rounds * turns) * lag + windows.nw;
  const u32 columns = everything ? 1u << 30 : p.reach;
  const u32 minus_slice = in_register(0 - p.by_slice.n), minus_row = in_register(0 - p.by_w.n);  // else negated often
  int range = (windows.d * p.Ho + windows.h) * p.Wo + windows.w;  // the first window of the range to load
  const i64 start = (image * p.plane_windows + range) * channels + min(c, channels - 1);
  const Element *grad = in_register(p.grad + start);  // of this window
  const Index *indices = in_register(p.indices + start);
  int window = 0, first = 0;  // of this lane's step of the next LANES: counted from `range` on; its first column
  int missed = 0;
  Element gradients[AHEAD];
  Index found[AHEAD];
  int which[AHEAD], firsts[AHEAD];
  // Of this lane's step of the next LANES: the column and the row.
  int column = lane - group * lag, row = group;
  for (; column >= period; column -= period) row += turns;
  const int column_0 = column, row_0 = row;
  auto list = [&](int from) {
    if (from == 0)
      column = column_0, row = row_0;
    else
      for (column += LANES; column >= period; column -= period) row += turns;
    const bool any = column >= 0 && column < windows.nw && row < rows && group < turns;
    const int d = WALK ? 0 : row / windows.nh;
    window = any ? (d * p.Ho + row - d * windows.nh) * p.Wo + column : 0;  // a step without window loads one, too
#if GROUPS > 1
    first = !any ? 1 << 30 : everything ? 0 : starts[column];
#endif
  };
  auto load = [&](int from) {
    if (steps > LANES && from % LANES == 0) list(from);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int next = __shfl_sync(ALL, window, from % LANES + i, LANES);
      firsts[i] = GROUPS > 1 ? __shfl_sync(ALL, first, from % LANES + i, LANES) : 0;
      which[i] = range + next;
      const u32 at = (u32)(next * channels);  // an image has less than 2^31 elements
      gradients[i] = grad[at];
      found[i] = indices[at];
    }
  };
  list(0);
  load(0);
  for (int r = 0; r < ranges; ++r) {
    if (WALK) before(windows.d + r);
    Held mine = held;
    if (c >= channels) mine.count = 0;  // nothing for a lane without a channel
    for (int done = 0; done < steps; done += AHEAD) {
      Element gradient[AHEAD];
      int place[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        gradient[i] = gradients[i];
        bool inside = GROUPS > 1 || done + i < steps;
        const u32 cell = low_word(found[i], which[i], p, inside);
        place[i] = place_of(p, cell, tile, mine, inside, firsts[i], columns, minus_slice, minus_row);
        missed += (u32)place[i] >> 31;
      }
      int from = done + AHEAD;
      if (from >= steps) {
        from = 0, range += p.Ho * p.Wo;
        grad += (i64)(p.Ho * p.Wo) * channels, indices += (i64)(p.Ho * p.Wo) * channels;
      }
      if (from > 0 || r + 1 < ranges) load(from);
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (place[i] >= 0) {
          Sum *at = (Sum *)(arena + (sums + place[i] * (LANES * (u32)sizeof(Sum))));
          *at += widen(gradient[i]);
        }
        if (GROUPS > 1) __syncwarp();  // in the next step another group may add to the same cell
      }
    }
  }
  return ranges * ((steps + AHEAD - 1) / AHEAD * AHEAD) - missed;
}

// Counts the indices of a channel that are outside the plane.
__device__ void report_faults(const Parameters &p, i64 image, int c) {
  const Index *indices = p.indices + image * p.plane_windows * p.channels + c;
#pragma unroll 1
  for (int q = 0; q < p.plane_windows; ++q)
    if (cell_of(indices[(i64)q * p.channels], q, p) < 0)
      report_fault(p.faults, (image * p.channels + c) * p.plane_windows + q);
}

// Writes PACK sums of neighbouring channels.
__device__ __forceinline__ void write(Element *to, const Sum *sums) {
#if PACK == 1
  *to = narrow(*sums);
#elif ELEMENT < 2
  *(uint4 *)to = *(const uint4 *)sums;
#else
  const float4 each = *(const float4 *)sums;
  *(uint2 *)to = make_uint2(narrow_two(each.x, each.y), narrow_two(each.z, each.w));
#endif
}

// Clears cells of all LANES.
__device__ __forceinline__ void clear(Sum *sums, int cells) {
#pragma unroll 4
  for (int i = threadIdx.x % 32; i < cells * LANES * (int)sizeof(Sum) / 16; i += 32)
    ((uint4 *)sums)[i] = make_uint4(0, 0, 0, 0);
}

// Writes `slices` slices of a tile, from slice d of the image on. `c` is the lane's channel.
__device__ __forceinline__ void write_slices(const Parameters &p, i64 image, int c, const Box &tile, int d, int slices,
                                             const Sum *sums) {
  const int lane = threadIdx.x % 32, first = c - lane % LANES;
  const bool full = PACK > 1 && first + LANES <= p.channels;
  const int pack = full ? PACK : 1, nth = lane * pack / LANES, channel = lane * pack % LANES;
  const Sum *sum = sums + channel;
  for (const int end = d + slices; d < end; ++d)
    for (int h = 0; h < tile.nh; ++h, sum += tile.nw * LANES) {
      const i64 row = ((image * p.D + d) * p.H + tile.h + h) * p.W + tile.w;
      Element *out = p.out + row * p.channels + first + channel;
      if (full) {
#pragma unroll 4
        for (int w = nth; w < tile.nw; w += PACK * GROUPS) write(out + (i64)w * p.channels, sum + w * LANES);
      } else if (c < p.channels) {
        for (int w = nth; w < tile.nw; w += GROUPS) out[(i64)w * p.channels] = narrow(sum[w * LANES]);
      }
    }
}

// Computes a tile from `windows`; returns how many gradients this lane added. `everything` counts only with WALK. False:
// the warp holds only the slices that the current windows have. True: the tile has at most p.ring slices.
__device__ __forceinline__ int compute_tile(const Parameters &p, i64 image, int c, const Box &tile, const Box &windows,
                                            unsigned char *arena, u32 offset, bool everything) {
  const int end = tile.d + tile.nd;
  Sum *const sums = (Sum *)(arena + offset);
  Held held = {tile.d, WALK ? min(tile.nd, p.ring) : tile.nd, 0, tile.nh * tile.nw};
  auto write_until = [&](int d) {
    __syncwarp();
    for (; held.first < d; ++held.first) {
      Sum *const at = sums + held.slot * held.pitch * LANES;
      write_slices(p, image, c, tile, held.first, 1, at);
      __syncwarp();
      if (held.first + p.ring < end) clear(at, held.pitch);  // for a later slice
      __syncwarp();
      held.slot = held.slot + 1 == p.ring ? 0 : held.slot + 1;
    }
  };
  int *const starts = (int *)(arena + offset + p.starts);
  if (GROUPS > 1 && !everything)
    for (int i = threadIdx.x % 32; i < windows.nw; i += 32) starts[i] = p.spans[2 * p.Do + windows.w + i];
  clear(sums, held.count * held.pitch);
  __syncwarp();
  const u32 own = in_register(offset + threadIdx.x % LANES * (u32)sizeof(Sum));
  const int added = add_windows(p, image, c, tile, windows, arena, own, starts, everything, held, [&](int d) {
    if (everything) return;
    const int *span = p.spans + 2 * d;
    write_until(max(span[0], tile.d));
    held.count = min(span[1], end) - held.first;
  });
  if (WALK) {
    write_until(end);
  } else {
    __syncwarp();
    write_slices(p, image, c, tile, tile.d, tile.nd, sums);
    __syncwarp();
  }
  return added;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) scatter_channels(const Parameters p) {
  SHARED(arena);
  int *total = (int *)arena;
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, groups = (p.channels + LANES - 1) / LANES;
  const u32 offset = 16 + warp * p.warp_bytes;  // of the warp's sums
  const Box all = {0, 0, 0, p.Do, p.Ho, p.Wo};

  // `which`: an image and LANES of its channels.
  auto expected = [&](u32 which) {
    return min(LANES, p.channels - (int)(which % groups) * LANES) * p.plane_windows;
  };
  auto compute = [&](u32 which, int from, int to, bool everything) {
    const int c = (int)(which % groups) * LANES + threadIdx.x % LANES;
    const i64 image = which / groups;
    int added = 0;
    if (everything && threadIdx.x < LANES && c < p.channels) report_faults(p, image, c);
    for (int b = from + warp; b < to; b += warps) {
      const int *facts = p.pieces + 12 * b;
      Box tile = {facts[0], facts[1], facts[2], facts[3], facts[4], facts[5]};
      const Box near = {facts[6], facts[7], facts[8], facts[9], facts[10], facts[11]};
      const int end = tile.d + tile.nd;
      if (WALK && everything) tile.nd = min(tile.nd, p.ring);
      do {
        added += compute_tile(p, image, c, tile, everything ? all : near, arena, offset, everything);
        tile.d += tile.nd, tile.nd = min(tile.nd, end - tile.d);
      } while (WALK && tile.d < end);
    }
    return added;
  };

  in_two_passes(p, (i64)p.images * groups, p.together, p.tiles, total, expected, compute);
}
