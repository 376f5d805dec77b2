// Forwards of few planes: a vector holds neighbouring windows of a row.
//
// This is fast if there are too few planes to fill a vector, and if the windows are 1 or 2 cells apart: then
// one or two loads fetch one cell of each window of a vector. An image is a plane.

#pragma once

#include "windows.h"

namespace pooltide {
namespace {

template <class S> S lowest();
template <> inline float lowest<float>() { return kLowest<float>; }
template <> inline double lowest<double>() { return kLowest<double>; }
template <> inline Half lowest<Half>() { return {0xFC00}; }
template <> inline Bfloat lowest<Bfloat>() { return {0xFF80}; }

// Loads every second element of 2 × lanes.
template <class S, int... i> inline VecOf<S> load_alternate(const S* p, Order<i...>) {
  return __builtin_shufflevector(load(p), load(p + lanes<S>), (2 * i)...);
}

template <class S, bool maximum, bool indexed> class RowsForward {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  using All = UpTo<lanes<S>>;
  static constexpr int64_t L = lanes<S>;

 public:
  RowsForward(const Problem& p, const Arrays& arrays, void*)
      : p_(p), arrays_(arrays), end_((const S*)arrays.input + p.planes() * p.cells()) {}
  static int64_t units(const Problem& p) { return Cursor::units(p, p.planes()); }
  int64_t scratch() const { return 0; }
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (p.channels_last) return "the arrays are channels-last";
    if (ignore_speed) return nullptr;
    if (p.planes() >= L / 2) return "there are enough planes to fill a vector";
    bool regular = (p.w.stride == 1 || p.w.stride == 2) && p.w.regular_to - p.w.regular_from >= L;
    return regular ? nullptr : "the row has no vector of equal windows 1 or 2 cells apart";
  }

  void run(int64_t begin, int64_t end) const {
    for (int64_t unit = begin; unit < end; unit++) {
      Cursor at(p_, unit);
      const S* x = (const S*)arrays_.input + at.image * p_.cells();
      const WindowRow<T> windows{p_, at.od, at.oh};
      int64_t row = ((at.image * p_.d.windows + at.od) * p_.h.windows + at.oh) * p_.w.windows;
      reduce_segment(windows, x, at.from, at.from + at.n, row);
    }
  }

 private:
  void reduce_segment(const WindowRow<T>& windows, const S* x, int64_t from, int64_t to, int64_t row) const {
    int64_t regular_from = smaller(larger(from, p_.w.regular_from), to), regular_to = smaller(to, p_.w.regular_to);
    bool regular = regular_to - regular_from >= L && (p_.w.stride == 1 || p_.w.stride == 2);
    if (!regular) regular_from = regular_to = to;
    for (int64_t o = from; o < regular_from; o += L) reduce_any(windows, x, o, smaller(L, regular_from - o), row);
    for (int64_t o = regular_from; o < regular_to; o += L) {
      int64_t at = smaller(o, regular_to - L);  // the last vector ends with the windows
      p_.w.stride == 1 ? reduce_regular<1>(windows, x, at, row) : reduce_regular<2>(windows, x, at, row);
    }
    for (int64_t o = regular_to; o < to; o += L) reduce_any(windows, x, o, smaller(L, to - o), row);
  }

  // Reduces a vector of windows of the same length, `stride` cells apart.
  template <int stride> void reduce_regular(const WindowRow<T>& windows, const S* x, int64_t o, int64_t row) const {
    int64_t first = p_.w.start[o], count = p_.w.length[o], step = p_.w.dilation;
    int64_t last_row = windows.row(p_.d.length[windows.od] - 1, p_.h.length[windows.oh] - 1);
    if (x + last_row * p_.w.cells + first + (count - 1) * step + stride * L > end_) return reduce_any(windows, x, o, L, row);
    Reduction<T, indexed> result = begin(windows, o);
    for_rows(windows, [&](const S* cells, I index) {
      for (int64_t j = 0; j < count; j++, cells += step, index += (Int)index_step(p_)) {
        V v;
        if constexpr (stride == 1) v = load(cells); else v = load_alternate(cells, All());
        reduce_cell<maximum>(result, v, index);
      }
    }, x, o);
    finish(windows, result, o, L, row);
  }

  // Reduces n windows of any kind: their cells are collected one by one.
  __attribute__((noinline)) void reduce_any(const WindowRow<T>& windows, const S* x, int64_t o, int64_t n, int64_t row) const {
    const Axis& w = p_.w;
    int64_t most = 0;
    for (int64_t k = 0; k < n; k++) most = larger(most, w.length[o + k]);
    Reduction<T, indexed> result = begin(windows, o, n);
    for_rows(windows, [&](const S* cells, I index) {
      for (int64_t j = 0; j < most; j++, index += (Int)index_step(p_)) {
        S values[L];
        for (int64_t k = 0; k < L; k++) values[k] = maximum ? lowest<S>() : S{};
        for (int64_t k = 0; k < n; k++)
          if (j < w.length[o + k]) values[k] = cells[w.start[o + k] - w.start[o] + j * w.dilation];
        reduce_cell<maximum>(result, load(values), index);
      }
    }, x, o, n);
    finish(windows, result, o, n, row);
  }

  // Returns the indices of the first cells of n windows.
  I indices(int64_t row_index, int64_t o, int64_t n) const {
    Int found[L] = {};
    for (int64_t k = 0; k < n; k++) found[k] = (Int)(row_index + first_index(p_, o + k));
    return read<I>(found);
  }

  Reduction<T, indexed> begin(const WindowRow<T>& windows, int64_t o, int64_t n = L) const {
    return {maximum ? splat(kLowest<T>) : V{}, indexed ? indices(windows.index_of_row(0, 0), o, n) : I{}};
  }

  // Calls `use` for each row of cells of n windows, with the address and index of the first cells.
  template <class F> void for_rows(const WindowRow<T>& windows, F use, const S* x, int64_t o, int64_t n = L) const {
    for (int64_t i = 0; i < p_.d.length[windows.od]; i++)
      for (int64_t j = 0; j < p_.h.length[windows.oh]; j++) {
        int64_t row = windows.row(i, j);
        use(x + row * p_.w.cells + p_.w.start[o], indexed ? indices(row_index(p_, row, i, j), o, n) : I{});
      }
  }

  void finish(const WindowRow<T>& windows, Reduction<T, indexed> result, int64_t o, int64_t n, int64_t row) const {
    if (!maximum) result.value = windows.quotients(result.value, o, n);
    store_results<S>(p_, arrays_, row + o, result, n);
  }

  const Problem& p_;
  const Arrays& arrays_;
  const S* end_;
};

}  // namespace
}  // namespace pooltide
