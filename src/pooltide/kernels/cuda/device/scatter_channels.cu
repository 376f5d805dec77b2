// The gradient of maxima of images whose channels are innermost: every window adds its gradient to the cell
// that its index names, in ascending order of the windows.
//
// A lane owns a channel, so lanes never name the same element. A warp holds a tile of cells, a box of the
// image, for 32 channels in shared memory, and takes the windows that may name its cells one after another.
// A block computes 32 channels of an image, or one of `parts` of them, tile by tile, in two passes (two_passes.h).
//
// With WALK a tile may have more slices than the warp holds: the warp walks through the slices of windows, and holds
// a ring of p.ring slices, as many as a window has. When no later window names a slice, the warp writes the slice and
// clears its place. An index far from its window may name another tile, or a slice that the warp does not hold. Then
// the warp does not add the gradient, and the second pass is needed. In that pass a warp takes p.ring slices at a time.
//
// With LANES 16 each half of a warp has 16 channels and a tile of its own. The two tiles have the same slices, so
// that both halves do the same steps; one of them may have no cells.
//
//     DEEP    1: images have more than one slice
//     LINEAR  1: tiles are contiguous: whole rows of a slice, or whole slices; with WALK: whole rows
//     PACK    channels that a lane writes at once, where all LANES are there
//     LANES   32, or with WALK 16: the channels of a tile
//     WALK    1: a warp walks through the slices of its tile
#include "indices.h"
#include "two_passes.h"

#define AHEAD 6  // windows whose gradients and indices are loaded together

struct Box {
  int d, h, w, nd, nh, nw;  // the first of each axis, and how many
};

// The slices of a tile that a warp holds.
struct Held {
  int first, count;  // slices of the image
  int slot;          // the place of the first one in the ring
  int pitch;         // cells from slice to slice
};

// The larger number of the two halves of a warp, if they have different tiles.
__device__ __forceinline__ int larger_half(int number) {
#if LANES == 16
  return max(number, __shfl_xor_sync(ALL, number, 16));
#else
  return number;
#endif
}

// Where the sums of a cell are: which of the tile's cells in shared memory; -1 if the warp does not hold the cell.
__device__ __forceinline__ int place_of(const Parameters &p, int cell, const Box &tile, const Held &held) {
#if LINEAR && !WALK
  const u32 local = cell - ((tile.d * p.H + tile.h) * p.W + tile.w);
  return local < (u32)(tile.nd * tile.nh * tile.nw) ? (int)local : -1;
#else
#if DEEP
  const u32 slice = over(cell, p.by_slice), rest = cell - slice * p.by_slice.n;
#else
  const u32 slice = 0, rest = cell;
#endif
  u32 nth = slice - held.first;
  bool inside = nth < (u32)held.count;
#if LINEAR
  const u32 in_slice = rest - tile.h * p.W;
  inside = inside && in_slice < (u32)(tile.nh * tile.nw);
#else
  const u32 line = over(rest, p.by_w), column = rest - line * p.by_w.n;
  const u32 i_h = line - tile.h, i_w = column - tile.w, in_slice = i_h * tile.nw + i_w;
  inside = inside && i_h < (u32)tile.nh && i_w < (u32)tile.nw;
#endif
#if WALK
  nth += held.slot;
  if (nth >= (u32)p.ring) nth -= p.ring;
#endif
  return inside ? (int)(nth * held.pitch + in_slice) : -1;
#endif
}

// Adds the gradients of the windows in `windows` that name cells in `tile`; returns how many this lane added.
// `held` has the slices that the warp holds. With WALK, before(d) is called before the windows of slice d, and may
// change `held`. `report` true: `windows` are all windows of the image; count the indices that are outside the plane.
template <class Before>
__device__ __forceinline__ int add_windows(const Parameters &p, i64 image, int c, const Box &tile, const Box &windows,
                                           Sum *sums, bool report, const Held &held, Before before) {
  const int channels = p.channels, ranges = WALK ? windows.nd : 1;
  const int total = windows.nh * windows.nw * (WALK ? 1 : windows.nd);  // of a range
  const int most = larger_half(total);
  const bool live = c < channels;  // other lanes read what the last one reads
  const i64 start = image * p.plane_windows * channels + min(c, channels - 1);
  const Element *grad = p.grad + start;
  const Index *indices = p.indices + start;
  const int next_row = p.Wo - windows.nw, next_slice = (p.Ho - windows.nh) * p.Wo;
  int added = 0;
  int window, h, w;  // the next one to load
  Element gradients[AHEAD];
  Index found[AHEAD];
  int which[AHEAD];
  auto load = [&](int left) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      which[i] = window;
      if (i < left) {
        const u32 at = (u32)(window * channels);  // an image has less than 2^31 elements
        gradients[i] = grad[at];
        found[i] = indices[at];
      }
      ++window;
      if (++w == windows.nw) {
        w = 0, window += next_row;
        if (++h == windows.nh) h = 0, window += next_slice;
      }
    }
  };
  auto load_range = [&](int r) {
    window = ((windows.d + r) * p.Ho + windows.h) * p.Wo + windows.w, h = w = 0;
    load(total);
  };
  if (ranges) load_range(0);
  for (int r = 0; r < ranges; ++r) {
    if (WALK) before(windows.d + r);
    for (int done = 0; done < most; done += AHEAD) {
      Element gradient[AHEAD];
      Index index[AHEAD];
      int q[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) gradient[i] = gradients[i], index[i] = found[i], q[i] = which[i];
      if (!WALK || done + AHEAD < most)
        load(total - done - AHEAD);
      else if (r + 1 < ranges)
        load_range(r + 1);
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (done + i >= total) continue;
        const int cell = cell_of(index[i], q[i], p);
        if (cell < 0) {
          if (report && live) report_fault(p.faults, (image * channels + c) * p.plane_windows + r * total + done + i);
          continue;
        }
        const int place = place_of(p, cell, tile, held);
        if (place >= 0 && live) {
          Sum *at = sums + place * 32;
          *at += widen(gradient[i]);
          ++added;
        }
      }
    }
  }
  return added;
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

// Clears cells of all 32 lanes.
__device__ __forceinline__ void clear(Sum *sums, int cells) {
#pragma unroll 4
  for (int i = threadIdx.x % 32; i < cells * 8 * (int)sizeof(Sum) / 4; i += 32)
    ((uint4 *)sums)[i] = make_uint4(0, 0, 0, 0);
}

// Writes `slices` slices of a tile, from slice d of the image on. `c` is the lane's channel.
__device__ __forceinline__ void write_slices(const Parameters &p, i64 image, int c, const Box &tile, int d, int slices,
                                             const Sum *sums, int lane) {
  const bool full = PACK > 1 && c - lane + LANES <= p.channels;
  const int pack = full ? PACK : 1, nth = lane * pack / LANES, channel = lane * pack % LANES;
  const Sum *sum = sums + channel;
  for (const int end = d + slices; d < end; ++d)
    for (int h = 0; h < tile.nh; ++h, sum += tile.nw * 32) {
      const i64 row = ((image * p.D + d) * p.H + tile.h + h) * p.W + tile.w;
      Element *out = p.out + row * p.channels + c - lane + channel;
      if (full) {
#pragma unroll 4
        for (int w = nth; w < tile.nw; w += PACK) write(out + (i64)w * p.channels, sum + w * 32);
      } else if (c < p.channels) {
        for (int w = 0; w < tile.nw; ++w) out[(i64)w * p.channels] = narrow(sum[w * 32]);
      }
    }
}

// Computes a tile from `windows`; returns how many gradients this lane added. `walk` counts only with WALK. True: the
// warp holds only the slices that the current windows have. False: the tile has at most p.ring slices.
__device__ __forceinline__ int compute_tile(const Parameters &p, i64 image, int c, const Box &tile, const Box &windows,
                                            Sum *sums, int lane, bool walk, bool report) {
  const int end = tile.d + tile.nd, half = threadIdx.x % 32 / LANES * LANES;  // the first lane of this tile
  Held held = {tile.d, WALK ? min(tile.nd, p.ring) : tile.nd, 0, larger_half(tile.nh * tile.nw)};
  auto write_until = [&](int d) {
    __syncwarp();
    for (; held.first < d; ++held.first) {
      Sum *const at = sums + held.slot * held.pitch * 32;
      write_slices(p, image, c, tile, held.first, 1, at + half, lane);
      __syncwarp();
      if (held.first + p.ring < end) clear(at, held.pitch);  // for a later slice
      __syncwarp();
      held.slot = held.slot + 1 == p.ring ? 0 : held.slot + 1;
    }
  };
  clear(sums, held.count * held.pitch);
  __syncwarp();
  const int added = add_windows(p, image, c, tile, windows, sums + half + lane, report, held, [&](int d) {
    if (!walk) return;
    const int *span = p.spans + 2 * d;
    write_until(max(span[0], tile.d));
    held.count = min(span[1], end) - held.first;
  });
  if (WALK) {
    write_until(end);
  } else {
    __syncwarp();
    write_slices(p, image, c, tile, tile.d, tile.nd, sums, lane);
    __syncwarp();
  }
  return added;
}

extern "C" __global__ void __launch_bounds__(THREADS) scatter_channels(const Parameters p) {
  SHARED(arena);
  int *total = (int *)arena;
  const int lane = threadIdx.x % LANES, half = threadIdx.x % 32 / LANES, halves = 32 / LANES;
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, groups = (p.channels + LANES - 1) / LANES;
  Sum *sums = (Sum *)(arena + 16 + (i64)warp * p.warp_bytes);
  const Box all = {0, 0, 0, p.Do, p.Ho, p.Wo};

  // `which`: an image and a group of LANES channels.
  auto expected = [&](u32 which) {
    return min(LANES, p.channels - (int)(which % groups) * LANES) * p.plane_windows;
  };
  auto compute = [&](u32 which, int from, int to, bool everything) {
    const int c = (int)(which % groups) * LANES + lane;
    const i64 image = which / groups;
    int added = 0;
    for (int b = from + warp; b < to; b += warps) {
      const int *facts = p.pieces + 12 * (b * halves + half);
      Box tile = {facts[0], facts[1], facts[2], facts[3], facts[4], facts[5]};
      const Box near = {facts[6], facts[7], facts[8], facts[9], facts[10], facts[11]};
      const int end = tile.d + tile.nd;
      if (WALK && everything) tile.nd = min(tile.nd, p.ring);
      do {
        const bool report = everything && b + half == 0 && tile.d == 0;
        added += compute_tile(p, image, c, tile, everything ? all : near, sums, lane, !everything, report);
        tile.d += tile.nd, tile.nd = min(tile.nd, end - tile.d);
      } while (WALK && tile.d < end);
    }
    return added;
  };

  in_two_passes(p, (i64)p.images * groups, p.together, p.tiles, total, expected, compute);
}
