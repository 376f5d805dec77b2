// Forwards: each window's sum or maximum, its cells ascending in (d, h, w).
//
//     average   ((0 + x[1st cell]) + x[2nd]) + …, then divided
//     maximum   the first of the largest cells; a NaN is larger than all else, and the last NaN wins
//
// Both are chains of operations that may not be reordered, so a vector holds many windows: the same window
// of many planes (tiles.h) or channels (channels.h), or neighbours in a row (rows.h). This file has what
// they share. Strides, overlaps and dilation do not change the work per cell of a window.

#pragma once

#include "../problem.h"
#include "../simd/lanes.h"
#include "../simd/scratch.h"

namespace pooltide {
namespace {

template <class T> struct Places;  // integers as wide as T, for the places of maxima
template <> struct Places<float> { using Int = int32_t; };
template <> struct Places<double> { using Int = int64_t; };
template <class T> using IntOf = typename Places<T>::Int;
template <class T> struct IntLanes { typedef IntOf<T> I __attribute__((vector_size(kBytes))); };

template <class T> constexpr T kLeast = -__builtin_inf();

// Where a maximum is, as the result's indices say it: flat inside the plane, or an offset inside the window.
// Cell k of window o, in row (i, j) of that window, which is row `row` of the plane, has the place
// row_place + first_place + k * place_step.
inline int64_t row_place(const Problem& p, int64_t row, int64_t i, int64_t j) {
  return p.index_bytes == 1 ? (i * p.h.longest + j) * p.w.longest : row * p.w.cells;
}
inline int64_t first_place(const Problem& p, int64_t o) { return p.index_bytes == 1 ? 0 : p.w.start[o]; }
inline int64_t place_step(const Problem& p) { return p.index_bytes == 1 ? 1 : p.w.dilation; }

// A maximum so far and its place, in each lane.
template <class T, bool indexed> struct Best {
  using V = typename Lanes<T>::V;
  using I = typename IntLanes<T>::I;
  V value;
  I place;

  void meet(V x, I at) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) {
      __mmask16 wins = _mm512_cmp_ps_mask((__m512)x, (__m512)value, _CMP_GT_OQ) |
                       _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
      value = (V)_mm512_mask_mov_ps((__m512)value, wins, (__m512)x);
      if (indexed) place = (I)_mm512_mask_mov_epi32((__m512i)place, wins, (__m512i)at);
    } else {
      __mmask8 wins = _mm512_cmp_pd_mask((__m512d)x, (__m512d)value, _CMP_GT_OQ) |
                      _mm512_cmp_pd_mask((__m512d)x, (__m512d)x, _CMP_UNORD_Q);
      value = (V)_mm512_mask_mov_pd((__m512d)value, wins, (__m512d)x);
      if (indexed) place = (I)_mm512_mask_mov_epi64((__m512i)place, wins, (__m512i)at);
    }
#else
    I wins = (I)(x > value) | (I)(x != x);
    value = (V)(((I)x & wins) | ((I)value & ~wins));
    if (indexed) place = (at & wins) | (place & ~wins);
#endif
  }
};

// One more cell of each window, `at` its place.
template <bool largest, class B, class V, class I> inline void take(B& best, V x, I at) {
  if (largest) best.meet(x, at);
  else best.value += x;
}
// `count` cells, `step` elements apart, of any storage type: added to a sum or met by a maximum.
template <class S> inline void add_cells(VecOf<S>& sum, const S* p, int64_t count, int64_t step) {
  switch (count) {
    case 3: sum += load(p), p += step; [[fallthrough]];
    case 2: sum += load(p), p += step; [[fallthrough]];
    case 1: sum += load(p); return;
    default:
      for (int64_t j = 0; j < count; j++) sum += load(p + j * step);
  }
}
template <class S, class B>
inline void meet_cells(B& best, const S* p, int64_t count, int64_t step, int64_t at, int64_t stride) {
  using T = typename Sum<S>::T;
  using I = typename IntLanes<T>::I;
  I place = (IntOf<T>)at - I{};
  for (int64_t j = 0; j < count; j++, place += (IntOf<T>)stride) best.meet(load(p + j * step), place);
}

// The windows of row (od, oh): where they begin, what divides their sums.
template <class T> struct Origin {
  const Problem& p;
  int64_t od, oh;

  int64_t row(int64_t i, int64_t j) const {
    return (p.d.start[od] + i * p.d.dilation) * p.h.cells + p.h.start[oh] + j * p.h.dilation;
  }
  int64_t place_of_row(int64_t i, int64_t j) const { return row_place(p, row(i, j), i, j); }
  int64_t place(int64_t ow) const { return place_of_row(0, 0) + first_place(p, ow); }
  // Of n neighbouring windows.
  template <class V> V quotients(V sums, int64_t ow, int64_t n) const {
    bool alike = true;
    for (int64_t k = 1; k < n; k++) alike = alike && p.w.divisor[ow + k] == p.w.divisor[ow];
    if (alike) return quotient(sums, ow);
    T sum[Lanes<T>::n];
    store(sum, sums);
    for (int64_t k = 0; k < n; k++) sum[k] = quotient(sum[k], ow + k);
    return load(sum);
  }
  template <class V> V quotient(V sum, int64_t ow) const {
    double d = p.d.divisor[od], h = p.h.divisor[oh], w = p.w.divisor[ow];
    if (p.quotient == Quotient::constant) return sum / T(p.divisor) + T(0);  // never -0, as in PyTorch
    if (p.quotient == Quotient::product) return sum / T(d * h * w) + T(0);
    if (p.quotient == Quotient::mean) return sum / T(d * h * w);
    if (d != 1) sum = sum / T(d);
    if (h != 1) sum = sum / T(h);
    return w == 1 ? sum : sum / T(w);
  }
};

// Writes the results of n windows, from the one at `at` on.
template <class S> inline void put(const Arrays& arrays, int64_t at, VecOf<S> values, int64_t n) {
  S* out = (S*)arrays.out + at;
  n == lanes<S> ? store(out, values) : store_part(out, values, n);
}
// Writes the places of n windows, likewise.
template <class Int> inline void tell(const Problem& p, const Arrays& arrays, int64_t at, const Int* places, int64_t n) {
  if (p.index_bytes == 1) {
    for (int64_t i = 0; i < n; i++) ((uint8_t*)arrays.indices)[at + i] = (uint8_t)places[i];
  } else {
    for (int64_t i = 0; i < n; i++) ((int64_t*)arrays.indices)[at + i] = places[i];
  }
}
template <class S, class T, bool indexed>
inline void put(const Problem& p, const Arrays& arrays, int64_t at, const Best<T, indexed>& best, int64_t n) {
  put<S>(arrays, at, best.value, n);
  if (!indexed) return;
  IntOf<T> places[lanes<S>];
  write(places, best.place);
  tell(p, arrays, at, places, n);
}

constexpr int64_t kSegment = 512;  // windows of a row that are worked on at a time

// What a range of units is: rows of windows cut into segments.
struct Cursor {
  int64_t image, od, oh, from, n;
  Cursor(const Problem& p, int64_t unit) {
    int64_t per_row = segments(p);
    from = unit % per_row * kSegment, n = smaller(kSegment, p.w.windows - from);
    int64_t row = unit / per_row;
    oh = row % p.h.windows, od = row / p.h.windows % p.d.windows, image = row / p.h.windows / p.d.windows;
  }
  static int64_t segments(const Problem& p) { return (p.w.windows + kSegment - 1) / kSegment; }
  static int64_t units(const Problem& p, int64_t images) {
    return images * p.d.windows * p.h.windows * segments(p);
  }
};

}  // namespace
}  // namespace pooltide
