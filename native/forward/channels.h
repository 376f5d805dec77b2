// Averages and maxima in channels-last order.
//
// A vector holds neighbouring channels of one cell. Each window is reduced cell by cell, L channels at a time; the
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
  static constexpr int64_t kTogether = 4;  // vectors whose updates do not wait for each other

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
    int64_t c = 0;
    for (; c + kTogether * L <= channels; c += kTogether * L) reduce_vectors(windows, ow, x + c, q * channels + c);
    for (; c < channels; c += L) {
      int64_t from = channels < L ? 0 : smaller(c, channels - L);  // the last vector ends with the channels
      int64_t n = smaller(L, channels), to = q * channels + from;
      Reduction<T, indexed> result = reduce(windows, ow, x + from, n);
      if (!maximum) result.value = windows.quotient(result.value, ow);
      store_results<S>(p_, arrays_, to, result, n);
    }
  }

  // Reduces window ow in kTogether vectors of channels from x on, and writes the results from `to` on.
  void reduce_vectors(const WindowRow<T>& windows, int64_t ow, const S* x, int64_t to) const {
    int64_t first = p_.w.start[ow], count = p_.w.length[ow], step = p_.w.dilation * p_.channels;
    Reduction<T, indexed> results[kTogether];
    for (auto& result : results) result = {maximum ? splat(kLowest<T>) : V{}, (Int)windows.index(ow) - I{}};
    for (int64_t i = 0; i < p_.d.length[windows.od]; i++)
      for (int64_t j = 0; j < p_.h.length[windows.oh]; j++) {
        const S* cells = x + (windows.row(i, j) * p_.w.cells + first) * p_.channels;
        I at = (Int)(windows.index_of_row(i, j) + first_index(p_, ow)) - I{};
        for (int64_t k = 0; k < count; k++, cells += step, at += (Int)index_step(p_))
          for (int64_t v = 0; v < kTogether; v++) reduce_cell<maximum>(results[v], load(cells + v * L), at);
      }
    for (int64_t v = 0; v < kTogether; v++) {
      if (!maximum) results[v].value = windows.quotient(results[v].value, ow);
      store_results<S>(p_, arrays_, to + v * L, results[v], L);
    }
  }

  // Reduces window ow in n channels from x on.
  Reduction<T, indexed> reduce(const WindowRow<T>& windows, int64_t ow, const S* x, int64_t n) const {
    int64_t first = p_.w.start[ow], count = p_.w.length[ow], step = p_.w.dilation, channels = p_.channels;
    Reduction<T, indexed> result{maximum ? splat(kLowest<T>) : V{}, (Int)windows.index(ow) - I{}};
    for (int64_t i = 0; i < p_.d.length[windows.od]; i++)
      for (int64_t j = 0; j < p_.h.length[windows.oh]; j++) {
        int64_t from = windows.row(i, j) * p_.w.cells + first, stride = index_step(p_);
        int64_t index = windows.index_of_row(i, j) + first_index(p_, ow);
        if (n == L) {
          reduce_cells<S, maximum>(result, x + from * channels, count, step * channels, index, stride);
          continue;
        }
        for (int64_t k = 0; k < count; k++) {
          S cell[L] = {};
          memcpy(cell, x + (from + k * step) * channels, n * sizeof(S));
          reduce_cells<S, maximum>(result, cell, 1, 0, index + k * stride, 0);
        }
      }
    return result;
  }

  const Problem& p_;
  const Arrays& arrays_;
};

}  // namespace
}  // namespace pooltide
