// The gradient of maxima of images whose channels are innermost: every window adds its gradient to the cell
// that its index names, in ascending order of the windows.
//
// A lane owns a channel, so lanes never name the same element. A warp holds a tile of cells, a box of the
// image, for 32 channels in shared memory, and takes the windows that may name its cells one after another.
// A block computes 32 channels of an image, or one of `parts` of them, tile by tile, in two passes (two_passes.h).
//
//     DEEP    1: images have more than one slice
//     LINEAR  1: tiles are contiguous: whole rows of a slice, or whole slices
//     PACK    channels that a lane writes at once, where all 32 are there
#include "indices.h"
#include "two_passes.h"

#define AHEAD 6  // windows whose gradients and indices are loaded together

struct Box {
  int d, h, w, nd, nh, nw;  // the first of each axis, and how many
};

// Adds the gradients of the windows in `windows` that name cells in `tile`; returns how many this lane added.
// `report`: count the indices that are outside the plane.
__device__ __forceinline__ int add_windows(const Parameters &p, i64 image, int c, const Box &tile,
                                           const Box &windows, Sum *sums, bool report) {
  const int channels = p.channels, total = c < channels ? windows.nh * windows.nd * windows.nw : 0;
  const i64 start = image * p.plane_windows * channels + c;
  const Element *grad = p.grad + start;
  const Index *indices = p.indices + start;
  const int begin = (tile.d * p.H + tile.h) * p.W + tile.w, size = tile.nd * tile.nh * tile.nw;
  const int next_row = p.Wo - windows.nw, next_slice = (p.Ho - windows.nh) * p.Wo;
  int added = 0;
  int window = (windows.d * p.Ho + windows.h) * p.Wo + windows.w, h = 0, w = 0;  // the next one to load
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
  load(total);
  for (int done = 0; done < total; done += AHEAD) {
    Element gradient[AHEAD];
    Index index[AHEAD];
    int q[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) gradient[i] = gradients[i], index[i] = found[i], q[i] = which[i];
    load(total - done - AHEAD);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      if (done + i >= total) continue;
      const int cell = cell_of(index[i], q[i], p);
      if (cell < 0) {
        if (report) report_fault(p.faults, (image * channels + c) * p.plane_windows + q[i]);
        continue;
      }
#if LINEAR
      const u32 local = cell - begin;
      const bool inside = local < (u32)size;
#else
#if DEEP
      const u32 slice = over(cell, p.by_slice), rest = cell - slice * p.by_slice.n;
#else
      const u32 slice = 0, rest = cell;
#endif
      const u32 line = over(rest, p.by_w), column = rest - line * p.by_w.n;
      const u32 i_d = slice - tile.d, i_h = line - tile.h, i_w = column - tile.w;
      const bool inside = i_d < (u32)tile.nd && i_h < (u32)tile.nh && i_w < (u32)tile.nw;
      const u32 local = (i_d * tile.nh + i_h) * tile.nw + i_w;
#endif
      if (inside) {
        Sum *at = sums + local * 32;
        *at += widen(gradient[i]);
        ++added;
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

extern "C" __global__ void __launch_bounds__(THREADS) scatter_channels(const Parameters p) {
  SHARED(arena);
  int *total = (int *)arena;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int groups = (p.channels + 31) / 32;
  Sum *sums = (Sum *)(arena + 16 + (i64)warp * p.warp_bytes);
  const Box all = {0, 0, 0, p.Do, p.Ho, p.Wo};

  // `which`: an image and a group of 32 channels.
  auto expected = [&](u32 which) { return min(32, p.channels - (int)(which % groups) * 32) * p.plane_windows; };
  auto compute = [&](u32 which, int from, int to, bool everything) {
    const int c = (int)(which % groups) * 32 + lane;
    const i64 image = which / groups;
    int added = 0;
    for (int b = from + warp; b < to; b += warps) {
      const int *facts = p.pieces + 12 * b;
      const Box tile = {facts[0], facts[1], facts[2], facts[3], facts[4], facts[5]};
      const Box near = {facts[6], facts[7], facts[8], facts[9], facts[10], facts[11]};
      const int cells = tile.nd * tile.nh * tile.nw;
#pragma unroll 4
      for (int i = lane; i < cells * 8 * (int)sizeof(Sum) / 4; i += 32) ((uint4 *)sums)[i] = make_uint4(0, 0, 0, 0);
      __syncwarp();
      added += add_windows(p, image, c, tile, everything ? all : near, sums + lane, everything && b == 0);
      __syncwarp();
      const bool full = PACK > 1 && c - lane + 32 <= p.channels;
      const int pack = full ? PACK : 1, nth = lane * pack / 32, channel = lane * pack % 32;
      const Sum *sum = sums + channel;
      for (int d = 0; d < tile.nd; ++d)
        for (int h = 0; h < tile.nh; ++h, sum += tile.nw * 32) {
          const i64 row = ((image * p.D + tile.d + d) * p.H + tile.h + h) * p.W + tile.w;
          Element *out = p.out + row * p.channels + c - lane + channel;
          if (full) {
#pragma unroll 4
            for (int w = nth; w < tile.nw; w += PACK) write(out + (i64)w * p.channels, sum + w * 32);
          } else if (c < p.channels) {
            for (int w = 0; w < tile.nw; ++w) out[(i64)w * p.channels] = narrow(sum[w * 32]);
          }
        }
      __syncwarp();
    }
    return added;
  };

  in_two_passes(p, (i64)p.images * groups, p.together, p.tiles, total, expected, compute);
}
