// The gradient of roi_align, ps_roi_align and ps_roi_pool: each cell adds what the regions that reach it give.
//
// A block computes a tile of cells of an image, for up to 32 · CHANNELS channels (of one bin, if each bin has its own).
// It lists the regions that reach the tile, in ascending order, some at a time. For each region and each row and column
// of the tile it writes which samples reach that row or column, with their weights: the list of a line. Then a group of
// threads walks through the regions for each cell; a thread adds CHANNELS channels. Everything that depends on
// boxes alone is the same for all threads of a group. A line with more than p.most weights has no list; its weights
// are computed where they are needed.
#include "division.h"
#include "regions.h"

#define LINES (TILE_H + TILE_W)
#define TOO_MANY (-1)

struct __align__(CHANNELS * sizeof(Element) < 16 ? CHANNELS * sizeof(Element) : 16) Elements {
  Element each[CHANNELS];
};

// A weight of a line: of which bin, and where the weights of the next bin begin.
struct Entry {
  Sum weight;
  unsigned short bin, end;
};

// By what terms are divided, and how (division.h).
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
template <int HOW>
__device__ __forceinline__ Sum divided(Sum term, Divisor by) {
#if ELEMENT == 2
  if (HOW == 3 && fabsf(term) < 7.888609052210118e-31f && term != 0) return divide_small(term, by.count);  // 2^-100
#endif
  return quotient<HOW>(term, by.count, by.inverse);
}

// Lists the weights of a line of the tile; returns how many, or TOO_MANY.
__device__ __forceinline__ int fill(Entry *entries, int most, const Line &line, int bins, Reach used, int size, int cell) {
  const Span span = span_of_cells(line, bins, size, cell, cell);
  const Reach near = bins_at(span, bins);
  int count = 0;
  for (int bin = max(near.first, used.first); bin <= min(near.last, used.last); ++bin) {
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

// Adds a bin's part of one weight of each axis to the sums.
template <int HOW>
__device__ __forceinline__ void add(Sum *sums, const Elements &grad, Sum wy, Sum wx, Divisor by) {
  const Sum weight = wy * wx;
#pragma unroll
  for (int i = 0; i < CHANNELS; ++i) {
#if SAMPLED
    sums[i] += divided<HOW>(widen(grad.each[i]) * weight, by);
#else
    sums[i] += widen(grad.each[i]) / weight;  // the weights are numbers of cells
#endif
  }
}

// Adds what a region gives to a cell, by the lists of the cell's row and column.
template <int HOW>
__device__ __forceinline__ void add_listed(const Parameters &p, Sum *sums, const Element *grad, const Entry *ys, int rows,
                                           const Entry *xs, int columns, Divisor by) {
  for (int i = 0; i < rows;) {
    const int bin = ys[i].bin * p.PW, next = ys[i].end;
    for (int j = 0; j < columns;) {
      const int end = xs[j].end;
      const Elements g = *(const Elements *)(grad + (i64)(bin + xs[j].bin) * p.stride);
      for (int a = i; a < next; ++a)
        for (int b = j; b < end; ++b) add<HOW>(sums, g, ys[a].weight, xs[b].weight, by);
      j = end;
    }
    i = next;
  }
}

// The same without lists.
__device__ __noinline__ void add_computed(const Parameters &p, Sum *sums, const Element *grad, int k, Reach rows,
                                          Reach columns, int row, int column, Sum count) {
  const Region region = region_of(p, k);
  const Divisor by = {count, 0, 4};
  const Span down = span_of_cells(region.y, p.PH, p.H, row, row), along = span_of_cells(region.x, p.PW, p.W, column, column);
  const Reach ys = bins_at(down, p.PH), xs = bins_at(along, p.PW);
  for (int ph = max(ys.first, rows.first); ph <= min(ys.last, rows.last); ++ph)
    for (int pw = max(xs.first, columns.first); pw <= min(xs.last, columns.last); ++pw) {
      const Elements g = *(const Elements *)(grad + (i64)(ph * p.PW + pw) * p.stride);
      each_weight(region.y, down, ph, p.H, row, [&](Sum wy) {
        each_weight(region.x, along, pw, p.W, column, [&](Sum wx) { add<4>(sums, g, wy, wx, by); });
      });
    }
}

extern "C" __global__ void __launch_bounds__(512) region_gather(const Parameters p) {
  SHARED(memory);
  const int width = p.lanes * CHANNELS, pitch = width + CHANNELS;  // sums of a cell, and how far those of the next are
  Sum *const sums = (Sum *)memory;
  Divisor *const divisors = (Divisor *)(sums + TILE_H * TILE_W * pitch);
  Entry *const entries = (Entry *)(divisors + p.at_once);
  int *const lengths = (int *)(entries + p.at_once * LINES * p.most), *const list = lengths + p.at_once * LINES;
  int *const counts = list + blockDim.x;

  // The block's part of the result.
  u32 rest = blockIdx.x;
  const int tile_x = rest % p.tiles_x * TILE_W;
  rest /= p.tiles_x;
  const int tile_y = rest % p.tiles_y * TILE_H;
  rest /= p.tiles_y;
  const int channel0 = rest % p.groups * width;
  rest /= p.groups;
  const int bin = SENSITIVE ? rest % (p.PH * p.PW) : 0, image = SENSITIVE ? rest / (p.PH * p.PW) : rest;
  const Reach rows = {SENSITIVE ? bin / p.PW : 0, SENSITIVE ? bin / p.PW : p.PH - 1};
  const Reach columns = {SENSITIVE ? bin % p.PW : 0, SENSITIVE ? bin % p.PW : p.PW - 1};
  const int bottom = min(tile_y + TILE_H, p.H) - 1, right = min(tile_x + TILE_W, p.W) - 1;
  const int lane = threadIdx.x % p.lanes, channel = channel0 + lane * CHANNELS;

  for (int i = threadIdx.x; i < TILE_H * TILE_W * pitch; i += blockDim.x) sums[i] = 0;
  wait_for_launch_before();
  for (int first = 0; first < p.K; first += blockDim.x) {
    const int listed_now = listed(list, counts, first, p.K, [&](int k) {
      const int *reach = p.reaches + (i64)k * 5;
      if (reach[0] != image || reach[1] > bottom || reach[2] < tile_y || reach[3] > right || reach[4] < tile_x) return false;
      if (!SENSITIVE) return true;
      const Region region = region_of(p, k);
      const Reach ys = bins_at(span_of_cells(region.y, p.PH, p.H, tile_y, bottom), p.PH);
      const Reach xs = bins_at(span_of_cells(region.x, p.PW, p.W, tile_x, right), p.PW);
      return ys.first <= rows.last && rows.first <= ys.last && xs.first <= columns.last && columns.first <= xs.last;
    });
    for (int begin = 0; begin < listed_now; begin += p.at_once) {
      const int regions = min(p.at_once, listed_now - begin);
      for (int job = threadIdx.x; job < regions * LINES; job += blockDim.x) {
        const int nth = job / LINES, line = job % LINES;
        const Region region = region_of(p, list[begin + nth]);
        Entry *const to = entries + job * p.most;
        const int cell = line < TILE_H ? tile_y + line : tile_x + line - TILE_H;
        const bool down = line < TILE_H;
        lengths[job] = fill(to, p.most, down ? region.y : region.x, down ? p.PH : p.PW, down ? rows : columns,
                            down ? p.H : p.W, cell);
        if (line == 0) divisors[nth] = divisor_of(samples_of(region));
      }
      __syncthreads();
      for (int cell = threadIdx.x / p.lanes; cell < TILE_H * TILE_W; cell += blockDim.x / p.lanes) {
        const int row = cell / TILE_W, column = cell % TILE_W;
        if (channel >= p.stride || tile_y + row > bottom || tile_x + column > right) continue;
        Sum *const kept = sums + cell * pitch + lane * CHANNELS;
        Sum added[CHANNELS];
#pragma unroll
        for (int i = 0; i < CHANNELS; ++i) added[i] = kept[i];
        for (int nth = 0; nth < regions; ++nth) {
          const int *const length = lengths + nth * LINES;
          const int ys = length[row], xs = length[TILE_H + column];
          if (ys == 0 || xs == 0) continue;
          const int k = list[begin + nth];
          const Element *const grad = p.grad + (i64)k * p.PH * p.PW * p.stride + channel;
          const Entry *const lists = entries + nth * LINES * p.most;
          const Entry *const of_row = lists + row * p.most, *const of_column = lists + (TILE_H + column) * p.most;
          const Divisor by = divisors[nth];
          if (ys == TOO_MANY || xs == TOO_MANY) {
#pragma unroll
            for (int i = 0; i < CHANNELS; ++i) kept[i] = added[i];
            add_computed(p, kept, grad, k, rows, columns, tile_y + row, tile_x + column, by.count);
#pragma unroll
            for (int i = 0; i < CHANNELS; ++i) added[i] = kept[i];
          } else if (!SAMPLED || by.how == 1)
            add_listed<1>(p, added, grad, of_row, ys, of_column, xs, by);
          else if (by.how == 3)
            add_listed<3>(p, added, grad, of_row, ys, of_column, xs, by);
          else
            add_listed<4>(p, added, grad, of_row, ys, of_column, xs, by);
        }
#pragma unroll
        for (int i = 0; i < CHANNELS; ++i) kept[i] = added[i];
      }
      __syncthreads();
    }
  }
  __syncthreads();

  // Neighbouring threads write neighbouring elements.
  const int count = min(width, p.channels - channel0), of_bin = SENSITIVE ? p.PH * p.PW : 1;
  const i64 plane = (i64)p.H * p.W, all = (i64)p.channels * of_bin;
  for (int i = threadIdx.x; i < count * TILE_H * TILE_W; i += blockDim.x) {
    const int cell = p.inner ? i / count : i % (TILE_H * TILE_W), c = p.inner ? i % count : i / (TILE_H * TILE_W);
    const int y = tile_y + cell / TILE_W, x = tile_x + cell % TILE_W;
    if (y > bottom || x > right) continue;
    const i64 at = (i64)y * p.W + x, input_channel = (i64)(channel0 + c) * of_bin + bin;
    p.out[p.inner ? (image * plane + at) * all + input_channel : (image * all + input_channel) * plane + at] =
        narrow(sums[cell * pitch + c]);
  }
}
