// The gradient of roi_pool, ps_roi_align and ps_roi_pool: a warp adds what regions give to a tile, a lane for each channel.
//
// A block has WARPS warps, each with other channels of the same tile. It lists the regions that reach the tile, in
// ascending order. Each warp goes through them in this order and adds to sums in shared memory. Lanes have sums of their
// own, so nothing collides.
// roi_pool: all lanes of a warp have the same bin. CHUNK bins are loaded while the CHUNK before are added.
// The other two: p.lanes lanes have the channels of a bin, and the lanes after them those of the next bin.
#include "regions.h"

#define PITCH 33  // from the sums of a cell to those of the next; so lanes read sums of one channel from different banks
#define CHUNK 8
#define ROW 36  // from the gradients of a bin to those of the next, without bank conflicts
#define NOWHERE (-1)
#define EACH 4  // regions that a thread looks at before a block lists them
#define FEW_SAMPLES 4  // of a bin on an axis: more are limited to those that may reach the tile

// Cells: first and last rows and columns.
struct Tile {
  int top, left, bottom, right;
};

// Where a cell is among the sums of a lane; NOWHERE: outside the tile.
__device__ __forceinline__ int place_of(const Tile &tile, int width, int y, int x) {
  if (y < tile.top || y > tile.bottom || x < tile.left || x > tile.right) return NOWHERE;
  return ((y - tile.top) * width + x - tile.left) * PITCH;
}

// A lane's channel of the result, and its bin.
struct Owner {
  int channel, bin;
  bool valid;
};
__device__ __forceinline__ Owner owner_of(const Parameters &p, int set, int lane) {
  Owner owner = {set * 32 + lane, 0, true};
#if SENSITIVE
  const int together = 32 / p.lanes, bin_sets = (p.PH * p.PW + together - 1) / together;
  owner.channel = set / bin_sets * p.lanes + lane % p.lanes;
  owner.bin = set % bin_sets * together + lane / p.lanes;
  owner.valid = owner.bin < p.PH * p.PW;
#endif
  owner.valid &= owner.channel < p.channels;
  return owner;
}

__device__ __forceinline__ Line line_of_lane(const Line &line, int lane) {
  Line got = line;
  got.start = __shfl_sync(ALL, line.start, lane);
  got.bin = __shfl_sync(ALL, line.bin, lane);
  got.grid = __shfl_sync(ALL, line.grid, lane);
  if (!SAMPLED) got.first = __shfl_sync(ALL, line.first, lane);
  return got;
}

#if POOL == 1
// The bins of a region whose cells, or the plane's cell next to them, are in the tile. Every bin is in such a tile.
__device__ __forceinline__ Reach bins_of_tile(const Line &line, int bins, int size, int first, int last, int lane) {
  Reach found = {0, -1};
  for (int begin = 0; begin < bins; begin += 32) {
    const int bin = begin + lane;
    const Reach cells = cells_of(line, bin, size);
    const int low = min(cells.first, size - 1);
    const u32 hits = __ballot_sync(ALL, bin < bins && low <= last && max(cells.last, low) >= first);
    if (!hits) continue;
    if (found.last < 0) found.first = begin + __ffs(hits) - 1;
    found.last = begin + 31 - __clz(hits);
  }
  return found;
}

// CHUNK gradients of a lane, and their indices. The lane's bin, or bin j with channels innermost, is one of CHUNK that
// follow each other; the lane has the bin, and its cells, of number lane % CHUNK.
struct Loaded {
  int k, bin;
  Reach down, along;
  Sum grads[CHUNK];
  Index indices[CHUNK];
};

// The same number of the lane that has bin j.
__device__ __forceinline__ int of_bin(const Parameters &p, int number, int j) {
  return p.inner ? __shfl_sync(ALL, number, j) : number;
}
__device__ __forceinline__ int channel_of(const Parameters &p, int lane, int j) {
  return p.inner ? lane : lane / CHUNK + j * (32 / CHUNK);
}

// Loads bins `first` … of ys × xs, counted rows first.
__device__ __forceinline__ void load(const Parameters &p, Loaded &loaded, int k, const Line &y, const Line &x, int channel0,
                                     Reach ys, Reach xs, int first, int lane) {
  const int bins = p.PH * p.PW, nth = first + lane % CHUNK, wide = xs.last - xs.first + 1, row = (int)((u32)nth / (u32)wide);
  const int ph = ys.first + row, pw = xs.first + nth - row * wide;
  const i64 base = (i64)k * p.channels * bins;
  loaded.k = k, loaded.bin = ph <= ys.last ? ph * p.PW + pw : -1;
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    const int bin = of_bin(p, loaded.bin, j), channel = channel0 + channel_of(p, lane, j);
    const bool there = bin >= 0 && channel < p.channels;
    const i64 at = base + (p.inner ? (i64)bin * p.channels + channel : (i64)channel * bins + bin);
    loaded.grads[j] = there ? widen(p.grad[at]) : (Sum)0;
    loaded.indices[j] = there ? p.indices[at] : (Index)-1;
  }
  loaded.down = cells_of(y, ph, p.H), loaded.along = cells_of(x, pw, p.W);
}

// Writes loaded gradients, and where their indices are among the sums. The tile of a bin's first cell checks that the
// indices are in the bin's cells: if not, `reaches` says that region_tiles must run again, for p.repair.
__device__ __forceinline__ void store(const Parameters &p, const Loaded &loaded, Sum *grads, int *places, const Tile &tile,
                                      int channel0, int lane) {
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    const Reach down = {of_bin(p, loaded.down.first, j), of_bin(p, loaded.down.last, j)};
    const Reach along = {of_bin(p, loaded.along.first, j), of_bin(p, loaded.along.last, j)};
    const int bin = of_bin(p, loaded.bin, j), channel = channel_of(p, lane, j);
    const Index index = loaded.indices[j];
    const bool in_plane = index >= 0 && index < (Index)p.H * p.W;
    const int y = in_plane ? (int)over((u32)index, p.by_W) : -1, x = in_plane ? (int)index - y * p.W : -1;
    const int at = (p.inner ? j : lane % CHUNK) * ROW + channel;
    grads[at] = loaded.grads[j], places[at] = place_of(tile, p.tile_w, y, x);
    const bool expected = y >= down.first && y <= down.last && x >= along.first && x <= along.last;
    if (index == -1 || expected || p.repair) continue;
    if (place_of(tile, p.tile_w, min(down.first, p.H - 1), min(along.first, p.W - 1)) == NOWHERE) continue;
    if (in_plane)
      atomicOr(p.reaches + (i64)p.K * 5, 1);
    else
      report_fault(p.faults, p.K + ((i64)loaded.k * p.channels + channel0 + channel) * p.PH * p.PW + bin);
  }
}
#endif

#if POOL == 2
template <int HOW>
__device__ __forceinline__ void add_samples(Sum *sums, const Tile &tile, int width, const Line &down, const Line &along,
                                            Reach is, Reach js, int ph, int pw, int H, int W, Sum g, Divisor by) {
  for (int i = is.first; i <= is.last; ++i) {
    Place y;
    if (!placed(position(down, ph, i), H, y) || y.high < tile.top || y.low > tile.bottom) continue;
    for (int j = js.first; j <= js.last; ++j) {
      Place x;
      if (!placed(position(along, pw, j), W, x) || x.high < tile.left || x.low > tile.right) continue;
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        const int to = place_of(tile, width, corner < 2 ? y.low : y.high, corner % 2 ? x.high : x.low);
        const Sum wy = corner < 2 ? (Sum)1 - y.part : y.part, wx = corner % 2 ? x.part : (Sum)1 - x.part;
        if (to != NOWHERE) sums[to] += divided<HOW>(g * (wy * wx), by);
      }
    }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) region_tiles(const Parameters p) {
  SHARED(memory);
  __shared__ int list[32 * WARPS * EACH], counts[WARPS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, width = p.tile_w, cells = p.tile_h * width;
  Sum *const sums = (Sum *)(memory + warp * p.warp_bytes), *const mine = sums + lane;
#if POOL == 1
  Sum *const grads = sums + cells * PITCH;
  int *const places = (int *)(grads + CHUNK * ROW);
#endif
  wait_for_launch_before();
  if (p.repair && p.reaches[(i64)p.K * 5] == 0) return;

  for (u32 block = blockIdx.x; block < (u32)p.blocks; block += gridDim.x) {
    u32 rest = block;
    Tile tile;
    tile.left = rest % p.tiles_x * width, rest /= p.tiles_x;
    tile.top = rest % p.tiles_y * p.tile_h, rest /= p.tiles_y;
    tile.bottom = min(tile.top + p.tile_h, p.H) - 1, tile.right = min(tile.left + width, p.W) - 1;
    const int set = rest % p.groups * WARPS + warp, image = rest / p.groups;
    const bool works = set < p.sets;
#if SENSITIVE
    const Owner owner = owner_of(p, set, lane);
    const int bin = min(owner.bin, p.PH * p.PW - 1), ph = bin / p.PW, pw = bin - ph * p.PW;
    const Reach rows = {__shfl_sync(ALL, ph, 0), __shfl_sync(ALL, ph, 31)};
    const bool one = rows.first == rows.last;
    const Reach columns = {one ? __shfl_sync(ALL, pw, 0) : 0, one ? __shfl_sync(ALL, pw, 31) : p.PW - 1};
    const i64 of_region = (i64)p.channels * p.PH * p.PW;
    const Element *const grad = p.grad + (p.inner ? (i64)bin * p.channels + owner.channel : (i64)owner.channel * p.PH * p.PW + bin);
#endif
    bool touched = false;
    for (int first = 0; first < p.K; first += EACH * blockDim.x) {
      const int listed_now = listed<EACH>(list, counts, first, p.K, [&](int k) {
        const int *reach = p.reaches + (i64)k * 5;
        const int of_image = reach[0], top = reach[1], bottom = reach[2], left = reach[3], right = reach[4];
        return of_image == image && (p.repair || (top <= tile.bottom && bottom >= tile.top && left <= tile.right && right >= tile.left));
      });
      for (int begin = 0; works && begin < listed_now; begin += 32) {
        const bool has = begin + lane < listed_now;
        const int k_of_lane = list[has ? begin + lane : begin];
        const Region region = region_of(p, k_of_lane);
#if SENSITIVE
        const Reach near_y = bins_at(span_of_cells(region.y, p.PH, p.H, tile.top, tile.bottom), p.PH);
        const Reach near_x = bins_at(span_of_cells(region.x, p.PW, p.W, tile.left, tile.right), p.PW);
        u32 hits = __ballot_sync(ALL, has && near_y.first <= rows.last && rows.first <= near_y.last &&
                                          near_x.first <= columns.last && columns.first <= near_x.last);
#else
        u32 hits = __ballot_sync(ALL, has);
#endif
        if (hits && !touched) {
          touched = true;
          for (int i = lane; i < cells * PITCH; i += 32) sums[i] = 0;
          __syncwarp();
        }
#if SENSITIVE
        Sum next = 0;  // the gradient of the next region
        const auto load = [&] {
          const int k = __shfl_sync(ALL, k_of_lane, hits ? __ffs(hits) - 1 : 0);
          if (hits && owner.valid) next = widen(grad[k * of_region]);
        };
        load();
        while (hits) {
          const int from = __ffs(hits) - 1;
          const Sum g = next;
          hits &= hits - 1;
          load();
          const Line y = line_of_lane(region.y, from), x = line_of_lane(region.x, from);
#if POOL == 2
          Reach is = {0, y.grid - 1}, js = {0, x.grid - 1};
          if (y.grid > FEW_SAMPLES) is = samples_at(y, span_of_cells(y, p.PH, p.H, tile.top, tile.bottom), ph);
          if (x.grid > FEW_SAMPLES) js = samples_at(x, span_of_cells(x, p.PW, p.W, tile.left, tile.right), pw);
          const Divisor by = divisor_of((i64)y.grid * x.grid);
          if (by.how == 1)
            add_samples<1>(mine, tile, width, y, x, is, js, ph, pw, p.H, p.W, g, by);
          else if (by.how == 3)
            add_samples<3>(mine, tile, width, y, x, is, js, ph, pw, p.H, p.W, g, by);
          else
            add_samples<4>(mine, tile, width, y, x, is, js, ph, pw, p.H, p.W, g, by);
#else
          const Reach down = cells_of(y, ph, p.H), along = cells_of(x, pw, p.W);
          const Sum term = g / (Sum)((i64)(down.last - down.first + 1) * (along.last - along.first + 1));
          for (int to_y = max(down.first, tile.top); to_y <= min(down.last, tile.bottom); ++to_y)
            for (int to_x = max(along.first, tile.left); to_x <= min(along.last, tile.right); ++to_x)
              mine[((to_y - tile.top) * width + to_x - tile.left) * PITCH] += term;
#endif
        }
#else
        const int channel0 = set * 32;
        Loaded loaded;
        Line y, x;
        Reach bins_y = {0, -1}, bins_x = {0, -1};
        int k = 0, first_bin = 0, bins = 0;
        const auto load_next = [&] {
          first_bin += CHUNK;
          while (first_bin >= bins) {
            if (!hits) return false;
            const int from = __ffs(hits) - 1;
            hits &= hits - 1;
            k = __shfl_sync(ALL, k_of_lane, from), y = line_of_lane(region.y, from), x = line_of_lane(region.x, from);
            bins_y = {0, p.PH - 1}, bins_x = {0, p.PW - 1};
            if (!p.repair) {
              bins_y = bins_of_tile(y, p.PH, p.H, tile.top, tile.bottom, lane);
              bins_x = bins_of_tile(x, p.PW, p.W, tile.left, tile.right, lane);
            }
            bins = (bins_y.last - bins_y.first + 1) * (bins_x.last - bins_x.first + 1), first_bin = 0;
          }
          load(p, loaded, k, y, x, channel0, bins_y, bins_x, first_bin, lane);
          return true;
        };
        bool more = load_next();
        while (more) {
          __syncwarp();
          store(p, loaded, grads, places, tile, channel0, lane);
          __syncwarp();
          more = load_next();
          Sum g[CHUNK];
          int to[CHUNK];
#pragma unroll
          for (int b = 0; b < CHUNK; ++b) g[b] = grads[b * ROW + lane], to[b] = places[b * ROW + lane];
#pragma unroll
          for (int b = 0; b < CHUNK; ++b)
            if (to[b] != NOWHERE) mine[to[b]] += g[b];
        }
#endif
      }
      __syncthreads();  // before the list is overwritten
    }
    __syncwarp();
    // Neighbouring lanes write neighbouring elements: channels, or cells of 32 / CHUNK channels.
    const int shift = __ffs(width) - 1, of_bin = SENSITIVE ? p.PH * p.PW : 1;
    const i64 plane = (i64)p.H * p.W, all = (i64)p.channels * of_bin;
    for (int turn = 0; works && turn < (p.inner ? 1 : CHUNK); ++turn) {
      const int column = p.inner ? lane : lane / CHUNK * CHUNK + turn;
      const Owner of = owner_of(p, set, column);
      if (!of.valid) continue;
      const i64 channel = (i64)of.channel * of_bin + of.bin;
      for (int i = p.inner ? 0 : lane % CHUNK; i < cells; i += p.inner ? 1 : CHUNK) {
        const int y = tile.top + (i >> shift), x = tile.left + (i & (width - 1));
        if (y > tile.bottom || x > tile.right) continue;
        const i64 at = (i64)y * p.W + x;
        p.out[p.inner ? (image * plane + at) * all + channel : (image * all + channel) * plane + at] =
            narrow(touched ? sums[i * PITCH + column] : (Sum)0);
      }
    }
    __syncwarp();
  }
}
