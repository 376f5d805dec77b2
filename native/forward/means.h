// Means of whole planes: the adaptive average to size 1.
//
// Cell i is added to sum i mod 16. The 16 sums are then added in pairs that are 8, 4, 2 and 1 apart.

#pragma once

#include "windows.h"

namespace pooltide {
namespace {

// Adds n values in pairs that are n/2, …, 2, 1 apart.
template <int n, class V> inline V add_pairs(V* sums) {
#pragma GCC unroll 4
  for (int step = n / 2; step > 0; step /= 2)
#pragma GCC unroll 8
    for (int k = 0; k < step; k++) sums[k] += sums[k + step];
  return sums[0];
}

// Returns the sum of row r in lane r. The elements of a row are added in the same pairs.
template <int n, class V> inline V add_lanes(V* rows) {
  using All = UpTo<n>;
#pragma GCC unroll 4
  for (int half = n / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int r = 0; r < half; r++)
      rows[r] = zip<n, 0>(rows[r], rows[r + half], All()) + zip<n, 1>(rows[r], rows[r + half], All());
  return rows[0];
}

// A unit is a plane.
template <class S> class PlanesMean {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>, kSums = 16;

 public:
  PlanesMean(const Problem& p, const Arrays& arrays, void*) : p_(p), arrays_(arrays) {}
  static int64_t units(const Problem& p) { return p.planes(); }
  static const char* refuse(const Problem& p, bool) { return p.channels_last ? "the arrays are channels-last" : nullptr; }

  void run(int64_t begin, int64_t end) const {
    const WindowRow<T> windows{p_, 0, 0};
    const S* x = (const S*)arrays_.input;
    for (int64_t from = begin; from < end; from += L) {
      int64_t n = smaller(L, end - from);
      V rows[L] = {};
      for (int64_t k = 0; k < n; k++) rows[k] = sums(x + (from + k) * p_.cells());
      store_results<S>(arrays_, from, windows.quotient(add_lanes<L>(rows), 0), n);
    }
  }

 private:
  // Returns the 16 sums of a plane, added in pairs until they fit one vector.
  V sums(const S* x) const {
    V parts[kSums / L] = {};
    int64_t cells = p_.cells(), i = 0;
    for (; i + kSums <= cells; i += kSums)
#pragma GCC unroll 8
      for (int64_t m = 0; m < kSums / L; m++) parts[m] += load(x + i + m * L);
#pragma GCC unroll 8
    for (int64_t m = 0; m < kSums / L; m++, i += L)
      if (i < cells) parts[m] += load_first(x + i, smaller(L, cells - i));
    return add_pairs<kSums / L>(parts);
  }

  // Returns the first n elements, then zeros. Reads a whole vector unless it passes the end of the input.
  V load_first(const S* x, int64_t n) const {
    if (x + L > (const S*)arrays_.input + p_.planes() * p_.cells()) return load_part(x, n);
    static constexpr IntOf<T> masks[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    return (V)((I)load(x) & read<I>(masks + 16 - n));
  }

  const Problem& p_;
  const Arrays& arrays_;
};

// The same in channels-last order; a unit is an image.
template <class S> class ChannelsMean {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  static constexpr int64_t L = lanes<S>, kSums = 16;

 public:
  ChannelsMean(const Problem& p, const Arrays& arrays, void*) : p_(p), arrays_(arrays) {}
  static int64_t units(const Problem& p) { return p.batch; }
  static const char* refuse(const Problem& p, bool) { return p.channels_last ? nullptr : "the arrays are not channels-last"; }

  void run(int64_t begin, int64_t end) const {
    const WindowRow<T> windows{p_, 0, 0};
    int64_t channels = p_.channels, n = smaller(L, channels);
    for (int64_t image = begin; image < end; image++)
      for (int64_t c = 0; c < channels; c += L) {
        int64_t from = channels < L ? 0 : smaller(c, channels - L);
        V total = sum((const S*)arrays_.input + image * p_.cells() * channels + from, n);
        store_results<S>(arrays_, image * channels + from, windows.quotient(total, 0), n);
      }
  }

 private:
  V sum(const S* x, int64_t n) const {
    V sums[kSums] = {};
    for (int64_t i = 0; i < p_.cells(); i++, x += p_.channels) sums[i % kSums] += n == L ? load(x) : load_part(x, n);
    return add_pairs<kSums>(sums);
  }

  const Problem& p_;
  const Arrays& arrays_;
};

}  // namespace
}  // namespace pooltide
