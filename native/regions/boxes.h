// From a box to positions: the arithmetic that fixes which cells a region reads, and with which weights.
//
// T is float or double. Every operation is rounded, none is fused, and the order is torchvision's, so that the bits
// are, too.

#pragma once

#include "../simd/scratch.h"
#include "regions.h"

namespace pooltide {
namespace {

constexpr double kGridLimit = 2147483648.0;  // an adaptive grid, and a rounded position, are smaller

inline float ceiling(float x) { return __builtin_ceilf(x); }
inline double ceiling(double x) { return __builtin_ceil(x); }
inline float flooring(float x) { return __builtin_floorf(x); }
inline double flooring(double x) { return __builtin_floor(x); }
inline float rounding(float x) { return __builtin_roundf(x); }
inline double rounding(double x) { return __builtin_round(x); }

template <class T> inline Extent<T> sampled_extent(const Regions& r, T low, T high, int64_t bins) {
  T scale = T(r.scale), offset = r.aligned ? T(0.5) : T(0);
  T start = low * scale - offset, end = high * scale - offset, length = end - start;
  if (!r.aligned && length < T(1)) length = T(1);
  T bin = length / T(bins), samples = ceiling(bin);
  bool counts = samples > T(-kGridLimit) && samples < T(kGridLimit);
  return {start, bin, r.ratio > 0 ? r.ratio : counts ? int64_t(samples) : 0, 0, false};
}

template <class T> inline Extent<T> cell_extent(const Regions& r, T low, T high, int64_t bins) {
  T from = low * T(r.scale), to = high * T(r.scale);
  if (from != from || to != to) return {T(0), T(0), 0, 0, true};
  T least = T(-kGridLimit), most = T(kGridLimit);
  int64_t start = int64_t(rounding(from < least ? least : from > most ? most : from));
  int64_t end = int64_t(rounding(to < least ? least : to > most ? most : to));
  int64_t length = end - start + (r.maxima() ? 1 : 0);
  return {T(0), T(length < 1 ? 1 : length) / T(bins), 0, start, false};
}

template <class T> inline T position_of(const Extent<T>& e, int64_t bin, int64_t sample) {
  T middle = T(float(sample) + 0.5f);
  return (e.start + T(bin) * e.bin) + middle * e.bin / T(e.grid);
}

struct Span {
  int64_t begin, end;
};

// The first sample of [0, grid) that is beyond; `beyond` is false for the first ones, then true.
template <class F> inline int64_t first_beyond(int64_t grid, F beyond) {
  int64_t low = 0, high = grid;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (beyond(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The samples of a bin that are in the plane, -1 to `cells`. Positions rise or fall with the number of the sample.
template <class T> inline Span samples_inside(const Extent<T>& e, int64_t bin, int64_t cells) {
  if (e.grid <= 0) return {0, 0};
  T low = T(-1), high = T(cells), first = position_of(e, bin, 0), last = position_of(e, bin, e.grid - 1);
  if (first >= low && first <= high && last >= low && last <= high) return {0, e.grid};
  if (e.bin >= T(0))
    return {first_beyond(e.grid, [&](int64_t i) { return position_of(e, bin, i) >= low; }),
            first_beyond(e.grid, [&](int64_t i) { return position_of(e, bin, i) > high; })};
  if (e.bin < T(0))
    return {first_beyond(e.grid, [&](int64_t i) { return position_of(e, bin, i) <= high; }),
            first_beyond(e.grid, [&](int64_t i) { return position_of(e, bin, i) < low; })};
  return {0, 0};  // NaN
}

// The two cells around a sample on an axis: the second has the part `after` of it, the first the part `before`.
template <class T> struct Sample {
  int32_t low, high;
  T after, before;
};

template <class T> inline Sample<T> sample_at(T position, int64_t cells) {
  T y = position <= T(0) ? T(0) : position;
  int64_t low = int64_t(y);
  if (low >= cells - 1) return {int32_t(cells - 1), int32_t(cells - 1), T(0), T(1)};
  T after = y - T(low);
  return {int32_t(low), int32_t(low + 1), after, T(1) - after};
}

// Lists the samples of some bins of an axis that are in the plane: those of bin b are at[b] … at[b + 1] - 1.
template <class T> inline void list_samples(const Extent<T>& e, Span bins, int64_t cells, int64_t* at, Sample<T>* to) {
  int64_t n = 0;
  for (int64_t bin = bins.begin; bin < bins.end; bin++) {
    at[bin] = n;
    Span inside = samples_inside(e, bin, cells);
    for (int64_t i = inside.begin; i < inside.end; i++) to[n++] = sample_at(position_of(e, bin, i), cells);
  }
  at[bins.end] = n;
}

// The cells of a bin of cells on an axis; `cells` is the first one that does not count.
template <class T> inline Span cells_of_bin(const Extent<T>& e, int64_t bin, int64_t cells) {
  if (e.empty) return {0, 0};
  int64_t begin = int64_t(flooring(T(bin) * e.bin)) + e.origin, end = int64_t(ceiling(T(bin + 1) * e.bin)) + e.origin;
  return {smaller(larger(begin, 0), cells), smaller(larger(end, 0), cells)};
}

}  // namespace
}  // namespace pooltide
