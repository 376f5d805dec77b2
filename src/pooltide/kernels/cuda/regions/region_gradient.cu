// The gradient of a pool over regions: a warp adds what the regions give to a tile of cells, a lane for each channel.
//
// A block has WARPS warps, each with other channels of the same tile. It lists the regions that reach the tile, in
// ascending order. Then each warp goes through these regions, their bins, and the samples of a bin, in order, and adds
// to sums in shared memory. Lanes have their own sums, so nothing collides. All lanes of a warp have the same bin,
// unless each bin has its own channels: then p.lanes lanes share a bin, and the lanes after them have the next.
//
// The gradients of up to CHUNK bins of a row of bins are loaded while the CHUNK before is added.
#include "division.h"
#include "regions.h"

#define PITCH 33   // from the sums of a cell to those of the next; so lanes read sums of one channel from different banks
#define PLACES 64  // places of samples on an axis that a warp has in shared memory
#define CHUNK 8
#define ROW 36  // from the gradients of a bin to those of the next, without bank conflicts
#define BORDER SAMPLED  // a sample beside the tile adds to cells of a border, which is not written
#define NOWHERE (-1)

// Cells: first and last rows and columns.
struct Tile {
  int top, left, bottom, right;
};

// The samples of a region that may reach the tile on an axis, counted through all bins.
struct Part {
  int first, count;
};

// The input channel's place of a lane: its channel of the result, its bin.
struct Owner {
  int channel, bin;
  bool valid;
};
__device__ __forceinline__ Owner owner_of(const Parameters &p, int set, int lane) {
  Owner owner = {set * 32 + lane, 0, true};
#if SENSITIVE
  const int bin_sets = (p.PH * p.PW + 32 / p.lanes - 1) / (32 / p.lanes);
  owner.channel = set / bin_sets * p.lanes + lane % p.lanes;
  owner.bin = set % bin_sets * (32 / p.lanes) + lane / p.lanes;
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

#if SAMPLED
// A place of a sample on an axis: where its lower cell is among the sums; NOWHERE: it does not touch the tile.
struct Entry {
  Sum part;
  int at;
};

// By what terms are divided, and how (division.h).
struct Divisor {
  Sum count, inverse;
  int how;
};

__device__ __forceinline__ Divisor divisor_of(i64 count) {
  Divisor by;
  by.count = (Sum)count;
  by.how = (count & (count - 1)) == 0 ? 1 : count < 1 << 20 ? 2 : 4;
  by.inverse = (Sum)1 / by.count;
  return by;
}

// `count` is PLACES + 1 if there are more than PLACES.
__device__ __forceinline__ Part part_of(const Line &line, int bins, int size, Reach used, int first, int last) {
  const i64 all = (i64)bins * line.grid;
  if (all <= 0 || all > 1 << 24) return {0, all > 0 ? PLACES + 1 : 0};
  const Span span = span_of_cells(line, bins, size, first, last);
  const Reach near = numbers(span.first * (Sum)line.grid, span.last * (Sum)line.grid, (int)all);
  const int begin = max(near.first, used.first * line.grid), end = min(near.last + 1, (used.last + 1) * line.grid);
  return {begin, min(max(end - begin, 0), PLACES + 1)};
}

// The samples of a part that reach the tile, and their bins.
struct Filled {
  Reach entries, bins;
  bool tiny;  // one lies so near to its lower cell that quotients need care
};
__device__ __forceinline__ Filled fill(Entry *entries, const Line &line, Part part, int size, int first, int last, int step,
                                       int lane) {
  Filled filled = {{0, -1}, {0, -1}, false};
  for (int begin = 0; begin < part.count; begin += 32) {
    const int e = begin + lane, bin = (int)((u32)(part.first + e) / (u32)line.grid);
    Place place = {0, 0, 0};
    const bool inside = placed(position(line, bin, part.first + e - bin * line.grid), size, place);
    const bool touches = inside && e < part.count && place.low >= first - 1 && place.low <= last;
    entries[e] = {place.part, touches ? (place.low - first + 1) * step : NOWHERE};
    filled.tiny |= touches && place.part > 0 && place.part < (Sum)9.313225746154785e-10;  // 2^-30
    const u32 hits = __ballot_sync(ALL, touches);
    if (!hits) continue;
    const int low = __ffs(hits) - 1, high = 31 - __clz(hits);
    if (filled.entries.last < 0) filled.entries.first = begin + low, filled.bins.first = __shfl_sync(ALL, bin, low);
    filled.entries.last = begin + high, filled.bins.last = __shfl_sync(ALL, bin, high);
  }
  filled.tiny = __any_sync(ALL, filled.tiny);
  return filled;
}

// The entries of a bin.
__device__ __forceinline__ Reach entries_of(const Filled &filled, const Part &part, int grid, int bin) {
  const int begin = bin * grid - part.first;
  return {max(begin, filled.entries.first), min(begin + grid - 1, filled.entries.last)};
}

// Four sums that a lane has in registers: those of cells at, at + PITCH, and of the row below.
struct Window {
  int at;
  Sum sums[4];
};

__device__ __forceinline__ void keep(Sum *sums, int row, const Window &window) {
  if (window.at == NOWHERE) return;
  Sum *const to = sums + window.at;
  to[0] = window.sums[0], to[PITCH] = window.sums[1], to[row] = window.sums[2], to[row + PITCH] = window.sums[3];
}

__device__ __forceinline__ void move(Sum *sums, int row, Window &window, int at) {
  keep(sums, row, window);
  const Sum *const from = sums + at;
  window.at = at;
  window.sums[0] = from[0], window.sums[1] = from[PITCH], window.sums[2] = from[row], window.sums[3] = from[row + PITCH];
}

// Adds a bin's samples, ys from … to by xs from … to.
template <int HOW>
__device__ __forceinline__ void add_samples(Sum *sums, int row, Window &window, const Entry *ys, Reach down,
                                            const Entry *xs, Reach along, Sum g, Divisor by) {
  Entry y_next = ys[max(down.first, 0)];
#pragma unroll 1
  for (int i = down.first; i <= down.last; ++i) {
    const Entry y = y_next;
    y_next = ys[i + 1];
    if (y.at < 0) continue;
    const Sum ly = y.part, hy = (Sum)1 - ly;
    Entry x_next = xs[max(along.first, 0)];
#pragma unroll 1
    for (int j = along.first; j <= along.last; ++j) {
      const Entry x = x_next;
      x_next = xs[j + 1];
      if (x.at < 0) continue;
      const int at = y.at + x.at;
      if (at != window.at) move(sums, row, window, at);
      const Sum lx = x.part, hx = (Sum)1 - lx;
      window.sums[0] += quotient<HOW>(g * (hy * hx), by.count, by.inverse);
      window.sums[1] += quotient<HOW>(g * (hy * lx), by.count, by.inverse);
      window.sums[2] += quotient<HOW>(g * (ly * hx), by.count, by.inverse);
      window.sums[3] += quotient<HOW>(g * (ly * lx), by.count, by.inverse);
    }
  }
}

// The same for any number of samples and any gradient, without a list of places.
__device__ __noinline__ void add_computed(Sum *sums, int row, Tile tile, Line down, Line along, int PH, int PW, int H, int W,
                                          int ph, int pw, Sum g, Sum count) {
  const Reach is = samples_at(down, span_of_cells(down, PH, H, tile.top, tile.bottom), ph);
  const Reach js = samples_at(along, span_of_cells(along, PW, W, tile.left, tile.right), pw);
  for (int i = is.first; i <= is.last; ++i) {
    Place y;
    if (!placed(position(down, ph, i), H, y)) continue;
    for (int j = js.first; j <= js.last; ++j) {
      Place x;
      if (!placed(position(along, pw, j), W, x)) continue;
      for (int corner = 0; corner < 4; ++corner) {
        const int to_y = corner < 2 ? y.low : y.high, to_x = corner % 2 ? x.high : x.low;
        const Sum wy = corner < 2 ? (Sum)1 - y.part : y.part, wx = corner % 2 ? x.part : (Sum)1 - x.part;
        if (to_y < tile.top || to_y > tile.bottom || to_x < tile.left || to_x > tile.right) continue;
        sums[(to_y - tile.top + 1) * row + (to_x - tile.left + 1) * PITCH] += g * (wy * wx) / count;
      }
    }
  }
}

// Whether a gradient needs `add_computed`: an infinity, times weights of 0, gives NaN also to cells that have two
// corners of a sample, and `quotient` needs terms that are not too small.
__device__ __forceinline__ bool needs_care(Sum g, int how) {
  const Sum size = size_of(g);
  return size == INFINITE || (how != 1 && size > 0 && size < (Sum)9.094947017729282e-13);  // 2^-40
}
#else
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
#endif

#if !SENSITIVE
// CHUNK gradients of a lane. The lane's bin, or with channels innermost bin j, is one of CHUNK that follow each other.
struct Loaded {
  int ph, pw;  // of bin lane % CHUNK
  Sum grads[CHUNK];
#if POOL == 1
  Index indices[CHUNK];
#endif
};

// Loads bins `first` … of ys × xs, counted rows first.
__device__ __forceinline__ void load(const Parameters &p, Loaded &loaded, i64 base, int channel0, Reach ys, Reach xs, int first,
                                     int lane) {
  const int bins = p.PH * p.PW, nth = first + lane % CHUNK, wide = xs.last - xs.first + 1, row = (int)((u32)nth / (u32)wide);
  loaded.ph = ys.first + row, loaded.pw = xs.first + nth - row * wide;
  const int bin_of_lane = loaded.ph <= ys.last ? loaded.ph * p.PW + loaded.pw : -1;
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    const int bin = p.inner ? __shfl_sync(ALL, bin_of_lane, j) : bin_of_lane;
    const int channel = channel0 + (p.inner ? lane : lane / CHUNK + j * (32 / CHUNK));
    const bool there = bin >= 0 && channel < p.channels;
    const i64 at = base + (p.inner ? (i64)bin * p.channels + channel : (i64)channel * bins + bin);
    loaded.grads[j] = there ? widen(p.grad[at]) : (Sum)0;
#if POOL == 1
    loaded.indices[j] = there ? p.indices[at] : (Index)-1;
#endif
  }
}
#endif

#if POOL == 1
// Writes where the indices of loaded bins are among the sums. The tile of a bin's first cell checks that they are in the
// bin's cells: if not, `reaches` says that region_gradient must run again, for p.repair.
__device__ __forceinline__ void store_places(const Parameters &p, const Loaded &loaded, int *places, const Line &y,
                                             const Line &x, Tile tile, int row, int k, int channel0, int lane) {
  const Reach down_of_lane = cells_of(y, loaded.ph, p.H), along_of_lane = cells_of(x, loaded.pw, p.W);
#pragma unroll
  for (int j = 0; j < CHUNK; ++j) {
    const int from = p.inner ? j : lane, channel = channel0 + (p.inner ? lane : lane / CHUNK + j * (32 / CHUNK));
    const Reach down = {__shfl_sync(ALL, down_of_lane.first, from), __shfl_sync(ALL, down_of_lane.last, from)};
    const Reach along = {__shfl_sync(ALL, along_of_lane.first, from), __shfl_sync(ALL, along_of_lane.last, from)};
    const int bin = __shfl_sync(ALL, loaded.ph * p.PW + loaded.pw, from);
    const Index index = loaded.indices[j];
    const bool in_plane = index >= 0 && index < (Index)p.H * p.W;
    const int to_y = in_plane ? (int)over((u32)index, p.by_W) : -1, to_x = in_plane ? (int)index - to_y * p.W : -1;
    const bool here = to_y >= tile.top && to_y <= tile.bottom && to_x >= tile.left && to_x <= tile.right;
    places[(p.inner ? j : lane % CHUNK) * ROW + channel - channel0] =
        here ? (to_y - tile.top) * row + (to_x - tile.left) * PITCH : NOWHERE;
    if (index == -1 || p.repair) continue;
    if (to_y >= down.first && to_y <= down.last && to_x >= along.first && to_x <= along.last) continue;
    const int begin_y = min(down.first, p.H - 1), begin_x = min(along.first, p.W - 1);
    if (begin_y < tile.top || begin_y > tile.bottom || begin_x < tile.left || begin_x > tile.right) continue;
    if (in_plane)
      atomicOr(p.reaches + (i64)p.K * 5, 1);
    else
      report_fault(p.faults, p.K + ((i64)k * p.channels + channel) * p.PH * p.PW + bin);
  }
}
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) region_gradient(const Parameters p) {
  SHARED(memory);
  __shared__ int list[32 * WARPS], counts[WARPS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Sum *next = (Sum *)(memory + warp * p.warp_bytes);
#if SAMPLED
  Entry *const ys = (Entry *)next, *const xs = ys + PLACES;
  next = (Sum *)(xs + PLACES);
#endif
#if !SENSITIVE
  Sum *const grads = next;
  next += CHUNK * ROW;
#endif
  Sum *const sums = next;
  const int width = p.tile_w + 2 * BORDER, row = width * PITCH, cells = (p.tile_h + 2 * BORDER) * width;
#if POOL == 1
  int *const places = (int *)(sums + cells * PITCH);
#endif
  wait_for_launch_before();
  if (p.repair && p.reaches[(i64)p.K * 5] == 0) return;

  for (u32 block = blockIdx.x; block < (u32)p.blocks; block += gridDim.x) {
    u32 rest = block;
    Tile tile;
    tile.left = rest % p.tiles_x * p.tile_w, rest /= p.tiles_x;
    tile.top = rest % p.tiles_y * p.tile_h, rest /= p.tiles_y;
    tile.bottom = min(tile.top + p.tile_h, p.H) - 1, tile.right = min(tile.left + p.tile_w, p.W) - 1;
    const int set = rest % p.groups * WARPS + warp, image = rest / p.groups;
    const bool works = set < p.sets;
    const Owner owner = owner_of(p, set, lane);
    Sum *const mine = sums + lane;
#if SENSITIVE
    const int bin = min(owner.bin, p.PH * p.PW - 1), ph = bin / p.PW, pw = bin - ph * p.PW;
    const int first_ph = __shfl_sync(ALL, ph, 0), last_ph = __shfl_sync(ALL, ph, 31);
    const bool one_row = first_ph == last_ph;
    const Reach rows = {first_ph, last_ph};
    const Reach columns = {one_row ? __shfl_sync(ALL, pw, 0) : 0, one_row ? __shfl_sync(ALL, pw, 31) : p.PW - 1};
    const i64 grad_at = p.inner ? (i64)bin * p.channels + owner.channel : (i64)owner.channel * p.PH * p.PW + bin;
#else
    const Reach rows = {0, p.PH - 1}, columns = {0, p.PW - 1};
    const int channel0 = set * 32;
#endif
    bool touched = false;
#if SAMPLED
    Window window;
    window.at = NOWHERE;
#endif
    for (int first = 0; first < p.K; first += blockDim.x) {
      const int listed_now = listed(list, counts, first, p.K, [&](int k) {
        const int *reach = p.reaches + (i64)k * 5;
        if (reach[0] != image) return false;
        return p.repair || (reach[1] <= tile.bottom && reach[2] >= tile.top && reach[3] <= tile.right && reach[4] >= tile.left);
      });
      for (int begin = 0; works && begin < listed_now; begin += 32) {
        const bool has = begin + lane < listed_now;
        const int k_of_lane = list[has ? begin + lane : begin];
        const Region region = region_of(p, k_of_lane);
#if SAMPLED
        const Part down_of_lane = part_of(region.y, p.PH, p.H, rows, tile.top, tile.bottom);
        const Part along_of_lane = part_of(region.x, p.PW, p.W, columns, tile.left, tile.right);
        u32 hits = __ballot_sync(ALL, has && down_of_lane.count > 0 && along_of_lane.count > 0);
#elif SENSITIVE
        const Reach near_y = bins_at(span_of_cells(region.y, p.PH, p.H, tile.top, tile.bottom), p.PH);
        const Reach near_x = bins_at(span_of_cells(region.x, p.PW, p.W, tile.left, tile.right), p.PW);
        u32 hits = __ballot_sync(ALL, has && near_y.first <= rows.last && rows.first <= near_y.last && near_x.first <= columns.last && columns.first <= near_x.last);
#else
        u32 hits = __ballot_sync(ALL, has);
#endif
        if (hits && !touched) {
          touched = true;
          for (int i = lane; i < cells * PITCH; i += 32) sums[i] = 0;
          __syncwarp();
        }
#if SENSITIVE
        int k = __shfl_sync(ALL, k_of_lane, hits ? __ffs(hits) - 1 : 0);
        Sum g_next = hits && owner.valid ? widen(p.grad[(i64)k * p.channels * p.PH * p.PW + grad_at]) : (Sum)0;
#endif
        while (hits) {
          const int from_lane = __ffs(hits) - 1;
          hits &= hits - 1;
#if SENSITIVE
          const Sum g = g_next;
          k = __shfl_sync(ALL, k_of_lane, hits ? __ffs(hits) - 1 : 0);
          if (hits && owner.valid) g_next = widen(p.grad[(i64)k * p.channels * p.PH * p.PW + grad_at]);
#else
          const int k = __shfl_sync(ALL, k_of_lane, from_lane);
#endif
          const Line y = line_of_lane(region.y, from_lane), x = line_of_lane(region.x, from_lane);
#if SAMPLED
          const Part down = {__shfl_sync(ALL, down_of_lane.first, from_lane), __shfl_sync(ALL, down_of_lane.count, from_lane)};
          const Part along = {__shfl_sync(ALL, along_of_lane.first, from_lane), __shfl_sync(ALL, along_of_lane.count, from_lane)};
          const i64 samples = (i64)y.grid * x.grid;
          const Divisor by = divisor_of(POOL == 0 && samples < 1 ? 1 : samples);
          bool careful = by.how == 4 || down.count > PLACES || along.count > PLACES;
          Filled rows_of, columns_of;
          if (careful) {
            rows_of.bins = bins_at(span_of_cells(y, p.PH, p.H, tile.top, tile.bottom), p.PH);
            columns_of.bins = bins_at(span_of_cells(x, p.PW, p.W, tile.left, tile.right), p.PW);
          } else {
            __syncwarp();
            rows_of = fill(ys, y, down, p.H, tile.top, tile.bottom, row, lane);
            columns_of = fill(xs, x, along, p.W, tile.left, tile.right, PITCH, lane);
            careful = by.how != 1 && (rows_of.tiny || columns_of.tiny);
            __syncwarp();
          }
          const auto add = [&](int ph, int pw, Sum g, bool care) {
            if (care) {
              keep(mine, row, window);
              window.at = NOWHERE;
              add_computed(mine, row, tile, y, x, p.PH, p.PW, p.H, p.W, ph, pw, g, by.count);
              return;
            }
            const Reach is = entries_of(rows_of, down, y.grid, ph), js = entries_of(columns_of, along, x.grid, pw);
            if (by.how == 1)
              add_samples<1>(mine, row, window, ys, is, xs, js, g, by);
            else
              add_samples<2>(mine, row, window, ys, is, xs, js, g, by);
          };
#endif
#if POOL == 3
          const Reach ys = cells_of(y, ph, p.H), xs = cells_of(x, pw, p.W);
          const Sum term = g / (Sum)((i64)(ys.last - ys.first + 1) * (xs.last - xs.first + 1));
          for (int to_y = max(ys.first, tile.top); to_y <= min(ys.last, tile.bottom); ++to_y)
            for (int to_x = max(xs.first, tile.left); to_x <= min(xs.last, tile.right); ++to_x)
              mine[(to_y - tile.top) * row + (to_x - tile.left) * PITCH] += term;
#elif SENSITIVE
          add(ph, pw, g, __any_sync(ALL, careful || needs_care(g, by.how)));
#else
#if POOL == 1
          const Reach bins_y = p.repair ? rows : bins_of_tile(y, p.PH, p.H, tile.top, tile.bottom, lane);
          const Reach bins_x = p.repair ? columns : bins_of_tile(x, p.PW, p.W, tile.left, tile.right, lane);
#else
          const Reach bins_y = rows_of.bins, bins_x = columns_of.bins;
#endif
          if (bins_y.first > bins_y.last || bins_x.first > bins_x.last) continue;
          const int bins = (bins_y.last - bins_y.first + 1) * (bins_x.last - bins_x.first + 1);
          const i64 base = (i64)k * p.channels * p.PH * p.PW;
          int ph = bins_y.first, pw = bins_x.first;
          Loaded loaded;
          load(p, loaded, base, channel0, bins_y, bins_x, 0, lane);
          for (int first_bin = 0; first_bin < bins; first_bin += CHUNK) {
            __syncwarp();
#if POOL == 1
            store_places(p, loaded, places, y, x, tile, row, k, channel0, lane);
#else
            bool care = careful;
#endif
#pragma unroll
            for (int j = 0; j < CHUNK; ++j) {
              grads[(p.inner ? j : lane % CHUNK) * ROW + (p.inner ? lane : lane / CHUNK + j * (32 / CHUNK))] = loaded.grads[j];
#if SAMPLED
              care |= needs_care(loaded.grads[j], by.how);
#endif
            }
#if SAMPLED
            care = __any_sync(ALL, care);
#endif
            __syncwarp();
            if (first_bin + CHUNK < bins) load(p, loaded, base, channel0, bins_y, bins_x, first_bin + CHUNK, lane);
#if POOL == 1
            Sum g[CHUNK];
            int to[CHUNK];
#pragma unroll
            for (int b = 0; b < CHUNK; ++b) g[b] = grads[b * ROW + lane], to[b] = places[b * ROW + lane];
#pragma unroll
            for (int b = 0; b < CHUNK; ++b)
              if (to[b] >= 0) mine[to[b]] += g[b];
#else
            Sum g_next = grads[lane];
#pragma unroll 1
            for (int b = 0; b < min(CHUNK, bins - first_bin); ++b) {
              const Sum g = g_next;
              g_next = grads[min(b + 1, CHUNK - 1) * ROW + lane];
              add(ph, pw, g, care);
              if (++pw > bins_x.last) pw = bins_x.first, ++ph;
            }
#endif
          }
#endif
        }
      }
      __syncthreads();  // before the list is overwritten
    }
#if SAMPLED
    if (touched) keep(mine, row, window);
#endif
    __syncwarp();
    if (works) {
      const int width_mask = p.tile_w - 1, shift = __ffs(p.tile_w) - 1, of_bin = SENSITIVE ? p.PH * p.PW : 1;
      const i64 plane = (i64)p.H * p.W, all = (i64)p.channels * of_bin;
      for (int turn = 0; turn < (p.inner ? 1 : CHUNK); ++turn) {
        // Neighbouring lanes write neighbouring elements: channels, or cells of 32 / CHUNK channels.
        const int column = p.inner ? lane : lane / CHUNK * CHUNK + turn;
        const Owner of = owner_of(p, set, column);
        if (!of.valid) continue;
        const i64 channel = (i64)of.channel * of_bin + of.bin;
        for (int i = p.inner ? 0 : lane % CHUNK; i < p.tile_h * p.tile_w; i += p.inner ? 1 : CHUNK) {
          const int y = i >> shift, x = i & width_mask;
          if (tile.top + y > tile.bottom || tile.left + x > tile.right) continue;
          const i64 at = (i64)(tile.top + y) * p.W + tile.left + x;
          p.out[p.inner ? (image * plane + at) * all + channel : (image * all + channel) * plane + at] =
              narrow(touched ? sums[((y + BORDER) * width + x + BORDER) * PITCH + column] : (Sum)0);
        }
      }
    }
    __syncwarp();
  }
}
