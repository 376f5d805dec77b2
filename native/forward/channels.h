// Forwards in channels-last order: a vector holds neighbouring channels of one cell.

#pragma once

#include "windows.h"

namespace pooltide {
namespace {

template <class S, bool largest, bool indexed> class ChannelsForward {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>;

 public:
  ChannelsForward(const Problem& p, const Arrays& arrays, void*) : p_(p), arrays_(arrays) {}
  static int64_t units(const Problem& p) { return Cursor::units(p, p.batch); }
  int64_t scratch() const { return 0; }
  static const char* refuse(const Problem& p, bool) { return p.channels_last ? nullptr : "the arrays are not channels-last"; }

  void run(int64_t begin, int64_t end) const {
    for (int64_t unit = begin; unit < end; unit++) {
      Cursor at(p_, unit);
      for (int64_t o = at.from; o < at.from + at.n; o++) window({p_, at.od, at.oh}, at.image, o);
    }
  }

 private:
  void window(const Origin<T>& origin, int64_t image, int64_t ow) const {
    int64_t channels = p_.channels, q = ((image * p_.d.windows + origin.od) * p_.h.windows + origin.oh) * p_.w.windows + ow;
    const S* x = (const S*)arrays_.input + image * p_.cells() * channels;
    for (int64_t c = 0; c < channels; c += L) {
      int64_t from = channels < L ? 0 : smaller(c, channels - L);  // the last vector ends with the channels
      int64_t n = smaller(L, channels), to = q * channels + from;
      Best<T, indexed> best = reduce(origin, ow, x + from, n);
      if (!largest) best.value = origin.quotient(best.value, ow);
      put<S>(p_, arrays_, to, best, n);
    }
  }

  Best<T, indexed> reduce(const Origin<T>& origin, int64_t ow, const S* x, int64_t n) const {
    int64_t first = p_.w.start[ow], count = p_.w.length[ow], step = p_.w.dilation, channels = p_.channels;
    Best<T, indexed> best{largest ? splat(kLeast<T>) : V{}, (Int)origin.place(ow) - I{}};
    for (int64_t i = 0; i < p_.d.length[origin.od]; i++)
      for (int64_t j = 0; j < p_.h.length[origin.oh]; j++) {
        int64_t from = origin.row(i, j) * p_.w.cells + first, stride = place_step(p_);
        int64_t place = origin.place_of_row(i, j) + first_place(p_, ow);
        if (n == L) {
          one_row(best, x + from * channels, count, step * channels, place, stride);
          continue;
        }
        for (int64_t k = 0; k < count; k++) {
          S cell[L] = {};
          memcpy(cell, x + (from + k * step) * channels, n * sizeof(S));
          one_row(best, cell, 1, 0, place + k * stride, 0);
        }
      }
    return best;
  }

  static void one_row(Best<T, indexed>& best, const S* p, int64_t count, int64_t step, int64_t place, int64_t stride) {
    if (largest) {
      meet_cells<S>(best, p, count, step, place, stride);
    } else {
      add_cells<S>(best.value, p, count, step);
    }
  }

  const Problem& p_;
  const Arrays& arrays_;
};

}  // namespace
}  // namespace pooltide
