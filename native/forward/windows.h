// Forwards: the sum or maximum of each window, its cells in ascending order of (d, h, w).
//
//     average   ((0 + x[1st cell]) + x[2nd]) + …, then divided
//     maximum   the first of the largest cells; NaN is larger than every number, and the last NaN wins
//
// These operations must not be reordered within a window, so a vector holds many windows: the same window of
// many planes (tiles.h) or channels (channels.h), or neighbours in a row (rows.h). This file has the parts that
// the three share. Stride, overlap and dilation do not change the work per cell of a window.

#pragma once

#include "../problem.h"
#include "../simd/lanes.h"
#include "../simd/scratch.h"

namespace pooltide {
namespace {

template <class T> struct IndexOf;  // integers as wide as T, for the indices of maxima
template <> struct IndexOf<float> { using Int = int32_t; };
template <> struct IndexOf<double> { using Int = int64_t; };
template <class T> using IntOf = typename IndexOf<T>::Int;
template <class T> struct IntLanes { typedef IntOf<T> I __attribute__((vector_size(kVectorBytes))); };

template <class T> constexpr T kLowest = -__builtin_inf();

// Indices of maxima: flat inside the plane or, in one byte, an offset inside the window.
// Cell k of window o, in row (i, j) of the window, which is row `row` of the plane, has the index
// row_index + first_index + k * index_step.
inline int64_t row_index(const Problem& p, int64_t row, int64_t i, int64_t j) {
  return p.index_bytes == 1 ? (i * p.h.longest + j) * p.w.longest : row * p.w.cells;
}
inline int64_t first_index(const Problem& p, int64_t o) { return p.index_bytes == 1 ? 0 : p.w.start[o]; }
inline int64_t index_step(const Problem& p) { return p.index_bytes == 1 ? 1 : p.w.dilation; }

// The sum, or the maximum and its index, of the cells seen so far; one window per lane.
template <class T, bool indexed> struct Reduction {
  using V = typename Lanes<T>::V;
  using I = typename IntLanes<T>::I;
  V value;
  I index;

  // Takes x if it is larger, or NaN.
  POOLTIDE_INLINE void update(V x, I at) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) {
      __mmask16 wins = _mm512_cmp_ps_mask((__m512)x, (__m512)value, _CMP_GT_OQ) |
                       _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
      value = (V)_mm512_mask_mov_ps((__m512)value, wins, (__m512)x);
      if (indexed) index = (I)_mm512_mask_mov_epi32((__m512i)index, wins, (__m512i)at);
    } else {
      __mmask8 wins = _mm512_cmp_pd_mask((__m512d)x, (__m512d)value, _CMP_GT_OQ) |
                      _mm512_cmp_pd_mask((__m512d)x, (__m512d)x, _CMP_UNORD_Q);
      value = (V)_mm512_mask_mov_pd((__m512d)value, wins, (__m512d)x);
      if (indexed) index = (I)_mm512_mask_mov_epi64((__m512i)index, wins, (__m512i)at);
    }
#else
    I wins = (I)(x > value) | (I)(x != x);
    value = (V)(((I)x & wins) | ((I)value & ~wins));
    if (indexed) index = (at & wins) | (index & ~wins);
#endif
  }
};

// Adds one cell x per window, or updates the maximum; `at` is the index of x.
template <bool maximum, class R, class V, class I> POOLTIDE_INLINE void reduce_cell(R& result, V x, I at) {
  if (maximum) result.update(x, at);
  else result.value += x;
}
// The same for `count` cells of any storage type: the cells are `step` elements apart, and their indices are
// at, at + stride, ….
template <class S> POOLTIDE_INLINE void add_cells(VecOf<S>& sum, const S* p, int64_t count, int64_t step) {
  switch (count) {
    case 3: sum += load(p), p += step; [[fallthrough]];
    case 2: sum += load(p), p += step; [[fallthrough]];
    case 1: sum += load(p); return;
    default:
      for (int64_t j = 0; j < count; j++) sum += load(p + j * step);
  }
}
template <class S, class R>
POOLTIDE_INLINE void max_cells(R& result, const S* p, int64_t count, int64_t step, int64_t at, int64_t stride) {
  using T = typename Sum<S>::T;
  using I = typename IntLanes<T>::I;
  I index = (IntOf<T>)at - I{};
  for (int64_t j = 0; j < count; j++, index += (IntOf<T>)stride) result.update(load(p + j * step), index);
}
template <class S, bool maximum, class R>
POOLTIDE_INLINE void reduce_cells(R& result, const S* p, int64_t count, int64_t step, int64_t at, int64_t stride) {
  if (maximum) max_cells<S>(result, p, count, step, at, stride);
  else add_cells<S>(result.value, p, count, step);
}

// Row (od, oh) of windows: where its windows begin, and their divisors.
template <class T> struct WindowRow {
  const Problem& p;
  int64_t od, oh;

  int64_t row(int64_t i, int64_t j) const {
    return (p.d.start[od] + i * p.d.dilation) * p.h.cells + p.h.start[oh] + j * p.h.dilation;
  }
  int64_t index_of_row(int64_t i, int64_t j) const { return row_index(p, row(i, j), i, j); }
  int64_t index(int64_t ow) const { return index_of_row(0, 0) + first_index(p, ow); }
  // Returns the quotients of n neighbouring windows from ow on.
  template <class V> __attribute__((noinline)) V quotients(V sums, int64_t ow, int64_t n) const {
    bool same = true;
    for (int64_t k = 1; k < n; k++) same = same && p.w.divisor[ow + k] == p.w.divisor[ow];
    if (same) return quotient(sums, ow);
    T sum[Lanes<T>::n];
    store(sum, sums);
    for (int64_t k = 0; k < n; k++) sum[k] = quotient(sum[k], ow + k);
    return load(sum);
  }
  template <class V> V quotient(V sum, int64_t ow) const {
    with_quotient(ow, [&](auto divide) { sum = divide(sum); });
    return sum;
  }
  // Calls use(divide), where divide(sum) returns the quotient of window ow.
  template <class F> POOLTIDE_INLINE void with_quotient(int64_t ow, F use) const {
    const T d = T(p.d.divisor[od]), h = T(p.h.divisor[oh]), w = T(p.w.divisor[ow]);
    if (p.quotient == Quotient::chained)
      return use([=](auto sum) {
        if (d != 1) sum = sum / d;
        if (h != 1) sum = sum / h;
        return w == 1 ? sum : sum / w;
      });
    const T by = p.quotient == Quotient::constant ? T(p.divisor) : T(double(p.d.divisor[od]) * p.h.divisor[oh] * p.w.divisor[ow]);
    if (p.quotient == Quotient::mean) return use([=](auto sum) { return sum / by; });
    use([=](auto sum) { return sum / by + T(0); });  // never -0, as in PyTorch
  }
};

// Writes the results of n windows; `at` is the position of the first.
template <class S> inline void store_results(const Arrays& arrays, int64_t at, VecOf<S> values, int64_t n) {
  S* out = (S*)arrays.out + at;
  n == lanes<S> ? store(out, values) : store_part(out, values, n);
}
template <class To, class I> inline void store_as(void* to, int64_t at, I indices, int64_t n) {
  constexpr int64_t all = sizeof(I) / sizeof(indices[0]);
  typedef To Stored __attribute__((vector_size(all * sizeof(To))));
  Stored made = __builtin_convertvector(indices, Stored);
  n == all ? memcpy((To*)to + at, &made, sizeof(made)) : memcpy((To*)to + at, &made, n * sizeof(To));
}
template <class I> inline void store_indices(const Problem& p, const Arrays& arrays, int64_t at, I indices, int64_t n) {
  if (p.index_bytes == 1) store_as<uint8_t>(arrays.indices, at, indices, n);
  else if (p.index_bytes == 4) store_as<int32_t>(arrays.indices, at, indices, n);
  else store_as<int64_t>(arrays.indices, at, indices, n);
}
template <class S, class T, bool indexed>
inline void store_results(const Problem& p, const Arrays& arrays, int64_t at, const Reduction<T, indexed>& result, int64_t n) {
  store_results<S>(arrays, at, result.value, n);
  if (indexed && p.index_bytes) store_indices(p, arrays, at, result.index, n);
}

constexpr int64_t kSegment = 512;
constexpr int64_t kBlockCells = 256, kCachedBytes = 512 << 10;  // of a tile of planes (tiles.h)

// Returns whether maxima are faster if each row of cells is reduced once for all rows of windows that hold it, and then
// the maxima of rows are reduced. Per vector, a cell takes about 7 instructions, the maximum of a row 8, and storing it 4.
// In channels-last order the other kernel takes 3 for a cell, and cells are not stored, which takes 30 for a window.
// The maxima and indices of the rows that a row of windows needs must fit the cache.
inline bool shares_rows(const Problem& p) {
  if (p.kind != Kind::maximum || p.w.cells > kBlockCells || p.w.windows > kSegment || p.windows() == 0) return false;
  const int64_t rows = p.d.longest * p.h.longest, kept = p.d.longest > 1 ? p.d.longest * p.h.cells : p.h.longest;
  if (kept * p.w.windows * 2 * kVectorBytes > kCachedBytes) return false;
  const double reduced = double(p.d.cells) * p.h.cells / (double(p.d.windows) * p.h.windows);  // per row of windows
  const double shared = reduced * (7 * p.w.longest + 4) + 8 * rows, separate = double(rows) * p.w.longest;
  return p.channels_last ? shared + 30 < 3 * separate : shared < 7 * separate;
}

// A unit of the forwards: up to kSegment windows of one row.
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
