// The gradient of roi_align, ps_roi_align and ps_roi_pool: each cell adds what the regions that reach it give.
//
// A block computes a tile of cells of an image, for p.lanes · CHANNELS channels of grad_output. It lists the regions
// that reach the tile, in ascending order, some at a time. For each region and each row and column of the tile it
// writes which samples reach that row or column, with their weights: the list of a line. Then a group of threads
// walks through the bins that reach a cell; a thread adds CHANNELS channels, and loads some bins before it adds
// them. Everything that depends on boxes alone is the same for all threads of a group. A line with more than p.most
// weights has no list; its weights are computed where they are needed.
#include "division.h"
#include "regions.h"

#define LINES (MOST_ROWS + TILE_W)
#define TOO_MANY (-1)
#define AHEAD 2  // bins that are loaded at once

struct __align__(CHANNELS * sizeof(Element) < 16 ? CHANNELS * sizeof(Element) : 16) Elements {
  Element each[CHANNELS];
};

// A weight of a line: of which bin, and where the weights of the next bin begin.
struct Entry {
  Sum weight;
  unsigned short bin, end;
};

// By what terms are divided, and how: 1 multiplies by the inverse, which is exact.
struct Divisor {
  Sum count, inverse;
  int how;
};

__device__ __forceinline__ Divisor divisor_of(i64 count) {
  Divisor by;
  by.count = (Sum)count;
  by.how = (count & (count - 1)) == 0 ? 1 : count < 1 << 20 ? 3 : 4;
  by.inverse = (Sum)1 / by.count;
  return by;
}

// A term, divided. `quotient` expects no tiny products of IEEE halves, but a weight can be tiny.
__device__ __forceinline__ Sum divided(Sum term, const Divisor &by) {
  if (by.how == 1) return term * by.inverse;
#if ELEMENT == 2
  if (fabsf(term) < 7.888609052210118e-31f && term != 0) return divide_small(term, by.count);  // 2^-100
#endif
  return by.how == 3 ? quotient<3>(term, by.count, by.inverse) : quotient<4>(term, by.count, by.inverse);
}

// Lists the weights of a line of the tile; returns how many, or TOO_MANY.
__device__ __noinline__ int fill(Entry *entries, int most, Line line, int bins, int size, int cell) {
  const Span span = span_of_cells(line, bins, size, cell, cell);
  const Reach near = bins_at(span, bins);
  int count = 0;
  for (int bin = near.first; bin <= near.last; ++bin) {
    const int begin = count;
    each_weight(line, span, bin, size, cell, [&](Sum weight) {
      if (count < most) entries[count].weight = weight, entries[count].bin = (unsigned short)bin;
      ++count;
    });
    if (count > most) return TOO_MANY;
    for (int i = begin; i < count; ++i) entries[i].end = (unsigned short)count;
  }
  return count;
}

__device__ __forceinline__ void put(Sum *to, const Sum *from) {
#pragma unroll
  for (int i = 0; i < CHANNELS; ++i) to[i] = from[i];
}

// Adds a bin's part of one weight of each axis to the sums.
__device__ __forceinline__ void add(Sum *sums, const Elements &grad, Sum wy, Sum wx, const Divisor &by) {
  const Sum weight = wy * wx;
#pragma unroll
  for (int i = 0; i < CHANNELS; ++i) {
#if SAMPLED
    sums[i] += divided(widen(grad.each[i]) * weight, by);
#else
    sums[i] += widen(grad.each[i]) / weight;  // the weights are numbers of cells
#endif
  }
}

// Adds what a region gives to a cell, without lists. If each bin has its own channels, `sums` has those of all bins.
__device__ __noinline__ void add_computed(const Parameters &p, Sum *sums, int k, int channel, int row, int column,
                                          Sum count, int pitch) {
  const Region region = region_of(p, k);
  const Element *const grad = p.grad + (i64)k * p.PH * p.PW * p.stride + channel;
  const Divisor by = {count, 0, 4};
  const Span down = span_of_cells(region.y, p.PH, p.H, row, row), along = span_of_cells(region.x, p.PW, p.W, column, column);
  const Reach ys = bins_at(down, p.PH), xs = bins_at(along, p.PW);
  for (int ph = ys.first; ph <= ys.last; ++ph)
    for (int pw = xs.first; pw <= xs.last; ++pw) {
      const int bin = ph * p.PW + pw;
      const Elements g = *(const Elements *)(grad + (i64)bin * p.stride);
      each_weight(region.y, down, ph, p.H, row, [&](Sum wy) {
        each_weight(region.x, along, pw, p.W, column,
                    [&](Sum wx) { add(sums + (SENSITIVE ? bin * pitch : 0), g, wy, wx, by); });
      });
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) region_gather(const Parameters p) {
  SHARED(memory);
  // Sums of a cell: of each bin, if it has its own channels. Those of a cell are `pitch` apart.
  const int width = p.lanes * CHANNELS, bins = p.PH * p.PW, of_bin = SENSITIVE ? bins : 1;
  const int pitch = width * of_bin + CHANNELS, cells = p.rows * TILE_W;
  Sum *const sums = (Sum *)memory;
  Divisor *const divisors = (Divisor *)(sums + cells * pitch);
  Entry *const entries = (Entry *)(divisors + p.at_once);
  int *const lengths = (int *)(entries + p.at_once * LINES * p.most), *const list = lengths + p.at_once * LINES;
  int *const counts = list + blockDim.x;
  // For each line, which of the regions reach it, and which of them have no list, as bits.
  u32 *const reaching = (u32 *)counts + 32, *const too_long = reaching + LINES;

  // The block's part of the result.
  u32 rest = blockIdx.x;
  const int tile_x = rest % p.tiles_x * TILE_W;
  rest /= p.tiles_x;
  const int tile_y = rest % p.tiles_y * p.rows;
  rest /= p.tiles_y;
  const int channel0 = rest % p.groups * width, image = rest / p.groups;
  const int bottom = min(tile_y + p.rows, p.H) - 1, right = min(tile_x + TILE_W, p.W) - 1;
  const int lane = threadIdx.x % p.lanes, channel = channel0 + lane * CHANNELS;

  for (int i = threadIdx.x; i < cells * pitch; i += blockDim.x) sums[i] = 0;
  wait_for_launch_before();
  for (int first = 0; first < p.K; first += blockDim.x) {
    const int listed_now = listed(list, counts, first, p.K, [&](int k) {
      const int *reach = p.reaches + (i64)k * 5;
      return reach[0] == image && reach[1] <= bottom && reach[2] >= tile_y && reach[3] <= right && reach[4] >= tile_x;
    });
    for (int begin = 0; begin < listed_now; begin += p.at_once) {
      const int regions = min(p.at_once, listed_now - begin);
      for (int line = threadIdx.x; line < LINES; line += blockDim.x) reaching[line] = too_long[line] = 0;
      __syncthreads();
      for (int job = threadIdx.x; job < regions * LINES; job += blockDim.x) {
        const int nth = job / LINES, line = job % LINES;
        const bool down = line < MOST_ROWS;
        const int cell = down ? tile_y + line : tile_x + line - MOST_ROWS;
        if (cell > (down ? bottom : right)) continue;
        const Region region = region_of(p, list[begin + nth]);
        const int length = fill(entries + job * p.most, p.most, down ? region.y : region.x, down ? p.PH : p.PW,
                                down ? p.H : p.W, cell);
        lengths[job] = length;
        if (length) atomicOr(&reaching[line], 1u << nth);
        if (length == TOO_MANY) atomicOr(&too_long[line], 1u << nth);
        if (line == 0) divisors[nth] = divisor_of(samples_of(region));
      }
      __syncthreads();
      for (int cell = threadIdx.x / p.lanes; cell < cells; cell += blockDim.x / p.lanes) {
        const int row = cell / TILE_W, column = cell % TILE_W;
        if (channel >= p.stride || tile_y + row > bottom || tile_x + column > right) continue;
        u32 left = reaching[row] & reaching[MOST_ROWS + column];
        if (left == 0) continue;
        Sum *const kept = sums + cell * pitch + lane * CHANNELS;
        if (left & (too_long[row] | too_long[MOST_ROWS + column])) {
          for (; left; left &= left - 1) {
            const int nth = __ffs(left) - 1;
            add_computed(p, kept, list[begin + nth], channel, tile_y + row, tile_x + column, divisors[nth].count, width);
          }
          continue;
        }
        Sum added[CHANNELS];
        put(added, kept);
        int nth = 0, i = 0, j = 0, rows = 0, columns = 0;  // the next bin: of which region, and where in its lists
        const Element *grad = p.grad;
        while (left || i < rows) {
          Elements loaded[AHEAD];
          int ys[AHEAD], xs[AHEAD], heights[AHEAD], widths[AHEAD], of[AHEAD], taken = 0;
#pragma unroll
          for (int u = 0; u < AHEAD; ++u) {
            heights[u] = 0;
            if (taken < u) continue;
            if (i >= rows) {
              if (left == 0) continue;
              nth = __ffs(left) - 1;
              left &= left - 1;
              rows = lengths[nth * LINES + row], columns = lengths[nth * LINES + MOST_ROWS + column], i = j = 0;
              grad = p.grad + (i64)list[begin + nth] * bins * p.stride + channel;
            }
            ys[u] = (nth * LINES + row) * p.most + i, xs[u] = (nth * LINES + MOST_ROWS + column) * p.most + j;
            const Entry y = entries[ys[u]], x = entries[xs[u]];
            const int at = y.bin * p.PW + x.bin;
            of[u] = SENSITIVE ? at << 5 | nth : nth;
            heights[u] = y.end - i, widths[u] = x.end - j;
            loaded[u] = *(const Elements *)(grad + (i64)at * p.stride);
            taken = u + 1;
            j = x.end;
            if (j >= columns) j = 0, i = y.end;
          }
#pragma unroll
          for (int u = 0; u < AHEAD; ++u) {
            if (heights[u] == 0) continue;
            Sum *const own = kept + (of[u] >> 5) * width;  // of the bin
            if (SENSITIVE) put(added, own);
            const Divisor by = divisors[of[u] & 31];
            for (int a = ys[u]; a < ys[u] + heights[u]; ++a)
              for (int b = xs[u]; b < xs[u] + widths[u]; ++b) add(added, loaded[u], entries[a].weight, entries[b].weight, by);
            if (SENSITIVE) put(own, added);
          }
        }
        if (!SENSITIVE) put(kept, added);
      }
      __syncthreads();
    }
  }
  __syncthreads();

  // Neighbouring threads write neighbouring elements: of channel · bins + bin, if each bin has its own channels.
  const int count = min(width, p.channels - channel0) * of_bin;
  const i64 plane = (i64)p.H * p.W, all = (i64)p.channels * of_bin;
  for (int i = threadIdx.x; i < count * cells; i += blockDim.x) {
    const int cell = p.inner ? i / count : i % cells, c = p.inner ? i % count : i / cells;
    const int y = tile_y + cell / TILE_W, x = tile_x + cell % TILE_W;
    if (y > bottom || x > right) continue;
    const i64 at = (i64)y * p.W + x, to = (i64)channel0 * of_bin + c;
    const int from = SENSITIVE ? c % bins * width + c / bins : c;
    p.out[p.inner ? (image * plane + at) * all + to : (image * all + to) * plane + at] = narrow(sums[cell * pitch + from]);
  }
}
