// Averages and maxima in channels-last order.
//
// A vector holds neighbouring channels of one cell. Each window is reduced cell by cell, some vectors at a time; the
// results, and the indices of maxima, are written in the same order. A unit is a piece of a row of windows.

#pragma once

#include "windows.h"

namespace pooltide {
namespace {

template <class S, bool maximum, bool indexed> class ChannelsForward {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>;
  // Vectors that are reduced together: their updates do not wait for each other, and more of a cell is read at once.
  static constexpr int kMost = 4;

 public:
  ChannelsForward(const Problem& p, const Arrays& arrays, void*) : p_(p), arrays_(arrays) {}
  static int64_t units(const Problem& p) { return Cursor::units(p, p.batch); }
  int64_t scratch() const { return 0; }
  static const char* refuse(const Problem& p, bool) { return p.channels_last ? nullptr : "the arrays are not channels-last"; }

  void run(int64_t begin, int64_t end) const {
    for (int64_t unit = begin; unit < end; unit++) {
      Cursor at(p_, unit);
      for (int64_t o = at.from; o < at.from + at.n; o++) reduce_window({p_, at.od, at.oh}, at.image, o);
    }
  }

 private:
  void reduce_window(const WindowRow<T>& windows, int64_t image, int64_t ow) const {
    int64_t channels = p_.channels, q = ((image * p_.d.windows + windows.od) * p_.h.windows + windows.oh) * p_.w.windows + ow;
    const S* x = (const S*)arrays_.input + image * p_.cells() * channels;
    if (channels < L) return reduce_part(windows, ow, x, q * channels);
    for (int64_t c = 0; c < channels;) c = reduce<kMost>(windows, ow, x, q * channels, c);
  }

  // Reduces window ow for the channels from c on: n vectors of channels, or half as many if half as many suffice. The
  // last vectors end at the last channel, so some channels may be reduced twice. Returns the next channel to reduce.
  template <int n> int64_t reduce(const WindowRow<T>& windows, int64_t ow, const S* x, int64_t to, int64_t c) const {
    if constexpr (n > 1)
      if (p_.channels < n * L || p_.channels - c <= n / 2 * L) return reduce<n / 2>(windows, ow, x, to, c);
    int64_t from = smaller(c, p_.channels - n * L);
    Reduction<T, indexed> results[n];
    for (auto& result : results) result = begun(windows, ow);
    for_each_cell(windows, ow, x + from, [&](const S* cell, I at) {
#pragma GCC unroll 8
      for (int v = 0; v < n; v++) reduce_cell<maximum>(results[v], load(cell + v * L), at);
    });
    for (int v = 0; v < n; v++) finish(windows, ow, results[v], to + from + v * L, L);
    return from + n * L;
  }

  // The same for fewer channels than a vector has.
  void reduce_part(const WindowRow<T>& windows, int64_t ow, const S* x, int64_t to) const {
    Reduction<T, indexed> result = begun(windows, ow);
    for_each_cell(windows, ow, x, [&](const S* from, I at) {
      S cell[L] = {};
      memcpy(cell, from, p_.channels * sizeof(S));
      reduce_cell<maximum>(result, load(cell), at);
    });
    finish(windows, ow, result, to, p_.channels);
  }

  Reduction<T, indexed> begun(const WindowRow<T>& windows, int64_t ow) const {
    return {maximum ? splat(kLowest<T>) : V{}, (Int)windows.index(ow) - I{}};
  }

  void finish(const WindowRow<T>& windows, int64_t ow, Reduction<T, indexed> result, int64_t to, int64_t n) const {
    if (!maximum) result.value = windows.quotient(result.value, ow);
    store_results<S>(p_, arrays_, to, result, n);
  }

  // Calls use(address, index) for each cell of window ow. The first cell of the plane is at x.
  template <class F> void for_each_cell(const WindowRow<T>& windows, int64_t ow, const S* x, F use) const {
    int64_t first = p_.w.start[ow], count = p_.w.length[ow], step = p_.w.dilation * p_.channels;
    for (int64_t i = 0; i < p_.d.length[windows.od]; i++)
      for (int64_t j = 0; j < p_.h.length[windows.oh]; j++) {
        const S* cell = x + (windows.row(i, j) * p_.w.cells + first) * p_.channels;
        I at = (Int)(windows.index_of_row(i, j) + first_index(p_, ow)) - I{};
        for (int64_t k = 0; k < count; k++, cell += step, at += (Int)index_step(p_)) use(cell, at);
      }
  }

  const Problem& p_;
  const Arrays& arrays_;
};

}  // namespace
}  // namespace pooltide
