// Forwards of few planes: a vector holds neighbouring windows of a row.

#pragma once

#include "windows.h"

namespace pooltide {
namespace {

template <class S> S least();
template <> inline float least<float>() { return kLeast<float>; }
template <> inline double least<double>() { return kLeast<double>; }
template <> inline Half least<Half>() { return {0xFC00}; }
template <> inline Bfloat least<Bfloat>() { return {0xFF80}; }

// Every second element of 2 × lanes.
template <class S, int... i> inline VecOf<S> load_evens(const S* p, Order<i...>) {
  return __builtin_shufflevector(load(p), load(p + lanes<S>), (2 * i)...);
}

// Pays where planes are too few to fill a vector and windows are 1 or 2 cells apart, so that one or two loads
// bring the cells of a vector of windows. An image is a plane.
template <class S, bool largest, bool indexed> class RowsForward {
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
  static const char* refuse(const Problem& p, bool able) {
    if (p.channels_last) return "the arrays are channels-last";
    if (able) return nullptr;
    if (p.planes() >= L / 2) return "planes are enough to fill vectors";
    bool even = (p.w.stride == 1 || p.w.stride == 2) && p.w.even_to - p.w.even_from >= L;
    return even ? nullptr : "the row has no vector of equal windows 1 or 2 cells apart";
  }

  void run(int64_t begin, int64_t end) const {
    for (int64_t unit = begin; unit < end; unit++) {
      Cursor at(p_, unit);
      const S* x = (const S*)arrays_.input + at.image * p_.cells();
      const Origin<T> origin{p_, at.od, at.oh};
      int64_t row = ((at.image * p_.d.windows + at.od) * p_.h.windows + at.oh) * p_.w.windows;
      segment(origin, x, at.from, at.from + at.n, row);
    }
  }

 private:
  void segment(const Origin<T>& origin, const S* x, int64_t from, int64_t to, int64_t row) const {
    int64_t even_from = smaller(larger(from, p_.w.even_from), to), even_to = smaller(to, p_.w.even_to);
    bool even = even_to - even_from >= L && (p_.w.stride == 1 || p_.w.stride == 2);
    if (!even) even_from = even_to = to;
    for (int64_t o = from; o < even_from; o += L) block(origin, x, o, smaller(L, even_from - o), row);
    for (int64_t o = even_from; o < even_to; o += L) {
      int64_t at = smaller(o, even_to - L);  // the last vector ends with the windows
      p_.w.stride == 1 ? even_block<1>(origin, x, at, row) : even_block<2>(origin, x, at, row);
    }
    for (int64_t o = even_to; o < to; o += L) block(origin, x, o, smaller(L, to - o), row);
  }

  template <int stride> void even_block(const Origin<T>& origin, const S* x, int64_t o, int64_t row) const {
    int64_t first = p_.w.start[o], count = p_.w.length[o], step = p_.w.dilation;
    int64_t last_row = origin.row(p_.d.length[origin.od] - 1, p_.h.length[origin.oh] - 1);
    if (x + last_row * p_.w.cells + first + (count - 1) * step + stride * L > end_) return block(origin, x, o, L, row);
    Best<T, indexed> best = begin(origin, o);
    for_rows(origin, [&](const S* cells, I place) {
      for (int64_t j = 0; j < count; j++, cells += step, place += (Int)place_step(p_)) {
        V v;
        if constexpr (stride == 1) v = load(cells); else v = load_evens(cells, All());
        take<largest>(best, v, place);
      }
    }, x, o);
    finish(origin, best, o, L, row);
  }

  // Windows of any kind: their cells are brought together one by one.
  void block(const Origin<T>& origin, const S* x, int64_t o, int64_t n, int64_t row) const {
    const Axis& w = p_.w;
    int64_t most = 0;
    for (int64_t k = 0; k < n; k++) most = larger(most, w.length[o + k]);
    Best<T, indexed> best = begin(origin, o, n);
    for_rows(origin, [&](const S* cells, I place) {
      for (int64_t j = 0; j < most; j++, place += (Int)place_step(p_)) {
        S values[L];
        for (int64_t k = 0; k < L; k++) values[k] = largest ? least<S>() : S{};
        for (int64_t k = 0; k < n; k++)
          if (j < w.length[o + k]) values[k] = cells[w.start[o + k] - w.start[o] + j * w.dilation];
        take<largest>(best, load(values), place);
      }
    }, x, o, n);
    finish(origin, best, o, n, row);
  }

  I places(int64_t row_place, int64_t o, int64_t n) const {
    Int found[L] = {};
    for (int64_t k = 0; k < n; k++) found[k] = (Int)(row_place + first_place(p_, o + k));
    return read<I>(found);
  }

  Best<T, indexed> begin(const Origin<T>& origin, int64_t o, int64_t n = L) const {
    return {largest ? splat(kLeast<T>) : V{}, indexed ? places(origin.place_of_row(0, 0), o, n) : I{}};
  }

  template <class F> void for_rows(const Origin<T>& origin, F use, const S* x, int64_t o, int64_t n = L) const {
    for (int64_t i = 0; i < p_.d.length[origin.od]; i++)
      for (int64_t j = 0; j < p_.h.length[origin.oh]; j++) {
        int64_t row = origin.row(i, j);
        use(x + row * p_.w.cells + p_.w.start[o], indexed ? places(row_place(p_, row, i, j), o, n) : I{});
      }
  }

  void finish(const Origin<T>& origin, Best<T, indexed> best, int64_t o, int64_t n, int64_t row) const {
    if (!largest) best.value = origin.quotients(best.value, o, n);
    put<S>(p_, arrays_, row + o, best, n);
  }

  const Problem& p_;
  const Arrays& arrays_;
  const S* end_;
};

}  // namespace
}  // namespace pooltide
