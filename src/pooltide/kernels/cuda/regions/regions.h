// Regions as kernels read them: their place on each axis, and what reaches a cell. docs/regions.md is the contract.
//
// POOL: 0 roi_align, 1 roi_pool, 2 ps_roi_align, 3 ps_roi_pool. Parameters has boxes, N, H, W, PH, PW, ratio, scale, offset.
#pragma once

#include "faults.h"
#include "warps.h"

#define SAMPLED (POOL == 0 || POOL == 2)
#define SENSITIVE (POOL >= 2)  // each bin has an input channel of its own
#define NO_IMAGE (-1)

#if ELEMENT == 1
#define EPSILON 2.220446049250313e-16
__device__ __forceinline__ Sum floor_of(Sum x) { return floor(x); }
__device__ __forceinline__ Sum ceil_of(Sum x) { return ceil(x); }
__device__ __forceinline__ Sum round_of(Sum x) { return round(x); }
__device__ __forceinline__ Sum size_of(Sum x) { return fabs(x); }
#else
#define EPSILON 1.1920928955078125e-07f
__device__ __forceinline__ Sum floor_of(Sum x) { return floorf(x); }
__device__ __forceinline__ Sum ceil_of(Sum x) { return ceilf(x); }
__device__ __forceinline__ Sum round_of(Sum x) { return roundf(x); }
__device__ __forceinline__ Sum size_of(Sum x) { return fabsf(x); }
#endif
#define INFINITE ((Sum)__int_as_float(0x7f800000))
#define LONG ((Sum)2147483648.0)  // 2^31: coordinates and grids beyond are clamped, or empty

// A region on one axis. Bin i of the aligns has `grid` samples. That of the pools has cells from `first` + i·bin.
struct Line {
  Sum start, bin;
  i64 first;
  int grid;
};

struct Region {
  int image;  // NO_IMAGE: the box names none
  Line y, x;
};

// first … last, or nothing if last < first.
struct Reach {
  int first, last;
};

__device__ __forceinline__ Line line_of(const Parameters &p, Sum from, Sum to, int bins) {
  Line line;
#if SAMPLED
  line.start = from * p.scale - p.offset;
  Sum length = to * p.scale - p.offset - line.start;
  if (POOL == 0 && p.offset == 0) length = length < 1 ? (Sum)1 : length;
  line.bin = length / (Sum)bins;
  const Sum samples = ceil_of(line.bin);
  line.grid = p.ratio > 0 ? p.ratio : samples > -LONG && samples < LONG ? (int)samples : 0;
  line.first = 0;
#else
  const Sum begin = round_of(from * p.scale), end = round_of(to * p.scale);
  line.grid = begin == begin && end == end;  // 0: a NaN, the region is empty
  line.first = line.grid ? (i64)(begin < -LONG ? -LONG : begin > LONG ? LONG : begin) : 0;
  const i64 last = line.grid ? (i64)(end < -LONG ? -LONG : end > LONG ? LONG : end) : 0;
  line.bin = (Sum)max(last - line.first + (POOL == 1), (i64)1) / (Sum)bins;
  line.start = (Sum)line.first;
#endif
  return line;
}

__device__ __forceinline__ Region region_of(const Parameters &p, int k) {
  const Sum *box = p.boxes + (i64)k * 5;
  Region region;
  const Sum image = box[0];
  region.image = image >= 0 && image < (Sum)p.N && image == floor_of(image) ? (int)image : NO_IMAGE;
  region.x = line_of(p, box[1], box[3], p.PW);
  region.y = line_of(p, box[2], box[4], p.PH);
  return region;
}

// By what the sum of a bin of roi_align or ps_roi_align is divided.
__device__ __forceinline__ i64 samples_of(const Region &region) {
  const i64 count = (i64)region.y.grid * region.x.grid;
  return POOL == 0 && count < 1 ? 1 : count;
}

// The position of sample i of a bin.
__device__ __forceinline__ Sum position(const Line &line, int bin, int i) {
  return (line.start + (Sum)bin * line.bin) + ((Sum)((float)i + 0.5f) * line.bin) / (Sum)line.grid;
}

// Where a position lies: between cells low and high, at `part` of the way. False: outside, it counts for nothing.
struct Place {
  int low, high;
  Sum part;
};
__device__ __forceinline__ bool placed(Sum at, int size, Place &place) {
  if (!(at >= -1 && at <= (Sum)size)) return false;
  if (at <= 0) at = 0;
  place.low = (int)at;
  place.high = place.low + 1;
  if (place.low >= size - 1) place.low = place.high = size - 1, at = (Sum)place.low;
  place.part = at - (Sum)place.low;
  return true;
}

// The cells of a bin of a pool over cells, inside 0 … size - 1.
__device__ __forceinline__ Reach cells_of(const Line &line, int bin, int size) {
  const i64 from = (i64)floor_of((Sum)bin * line.bin) + line.first;
  const i64 to = (i64)ceil_of((Sum)(bin + 1) * line.bin) + line.first;
  const Reach cells = {(int)max(min(from, (i64)size), (i64)0), (int)max(min(to, (i64)size), (i64)0) - 1};
  return cells;
}

// More than the error of a position, and of what is computed from it below. The numbers of samples are rounded to
// float32 in float64, too.
__device__ __forceinline__ Sum error_of(const Line &line, int bins) {
  const Sum length = size_of(line.bin);
  return 8 * EPSILON * (size_of(line.start) + length * (Sum)(bins + 1)) + (Sum)2.4e-7f * length;
}

// The part of a line between two positions, in bins; too long by more than all errors.
struct Span {
  Sum first, last;
};
__device__ __forceinline__ Span span_of(const Line &line, int bins, Sum low, Sum high) {
  const Sum error = error_of(line, bins) + 8 * EPSILON * (size_of(high) + 2);
  const Sum a = (low - error - line.start) / line.bin, b = (high + error - line.start) / line.bin;
  const Span span = {a < b ? a : b, a < b ? b : a};
  if (!(span.first == span.first && span.last == span.last)) return {-1, (Sum)bins};  // of bins without a length
  return span;
}

// The positions that touch the cells first … last.
__device__ __forceinline__ Span span_of_cells(const Line &line, int bins, int size, int first, int last) {
  const Sum low = first <= 1 ? (Sum)-1 : (Sum)(first - 1), high = last >= size - 1 ? (Sum)size : (Sum)(last + 1);
  return span_of(line, bins, low, high);
}

// Numbers of 0 … count - 1 that lie between two, with one more on each side.
__device__ __forceinline__ Reach numbers(Sum from, Sum to, int count) {
  const Sum all = (Sum)count;
  const i64 first = (i64)max(min(floor_of(from) - 1, all), (Sum)0), last = (i64)max(min(ceil_of(to) + 1, all), (Sum)-1);
  const Reach found = {(int)min(first, (i64)count), (int)min(last, (i64)count - 1)};
  return found;
}

// The bins that may reach cells.
__device__ __forceinline__ Reach bins_at(const Span &span, int bins) { return numbers(span.first, span.last, bins); }

// The samples of a bin that may reach cells.
__device__ __forceinline__ Reach samples_at(const Line &line, const Span &span, int bin) {
  return numbers((span.first - (Sum)bin) * (Sum)line.grid, (span.last - (Sum)bin) * (Sum)line.grid, line.grid);
}

// The cells that a region reaches on an axis; may be too many.
__device__ __forceinline__ Reach reach_of(const Line &line, int bins, int size) {
  Reach reach = {0, -1};
  if (line.grid <= 0 || !(size_of(line.start) < INFINITE && size_of(line.bin) < INFINITE)) return reach;
  const Sum far = line.start + (Sum)bins * line.bin;
  const Sum error = error_of(line, bins) + (SAMPLED ? 0 : 2);
  const Sum low = min(line.start, far) - error, high = max(line.start, far) + error;
  if (!(high >= -1 && low <= (Sum)size)) return reach;
  reach.first = (int)max(min(floor_of(low), (Sum)(size - 1)), (Sum)0);
  reach.last = (int)min((i64)max(min(floor_of(high), (Sum)size), (Sum)0) + 1, (i64)size - 1);
  return reach;
}

// Calls use(weight) for what samples of a bin add to a cell, in ascending order; the lower neighbour comes first.
// A bin of a pool over cells: use(the number of its cells) if it holds the cell.
template <class Use>
__device__ __forceinline__ void each_weight(const Line &line, const Span &span, int bin, int size, int cell, Use use) {
#if SAMPLED
  const Reach samples = samples_at(line, span, bin);
  for (int i = samples.first; i <= samples.last; ++i) {
    Place place;
    if (!placed(position(line, bin, i), size, place)) continue;
    if (place.low == cell) use((Sum)1 - place.part);
    if (place.high == cell) use(place.part);
  }
#else
  const Reach cells = cells_of(line, bin, size);
  if (cells.first <= cell && cell <= cells.last) use((Sum)(cells.last - cells.first + 1));
#endif
}

// Which of regions first … first + blockDim.x - 1, below K, a block needs: their numbers in ascending order, in `list`.
// All threads call it, and meet before the list is overwritten.
template <class Needed>
__device__ __forceinline__ int listed(int *list, int *counts, int first, int K, Needed needed) {
  const int k = first + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool hit = k < K && needed(k);
  const u32 hits = __ballot_sync(ALL, hit);
  if (lane == 0) counts[warp] = __popc(hits);
  __syncthreads();
  int before = 0, total = 0;
  for (int w = 0; w < (int)blockDim.x / 32; ++w) {
    if (w == warp) before = total;
    total += counts[w];
  }
  if (hit) list[before + __popc(hits & ((1u << lane) - 1))] = k;
  __syncthreads();
  return total;
}
