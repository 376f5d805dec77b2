// Adds rows of quotients, to get rows of cells of an average gradient.
//
// Input: a Strip, which lists for each row of cells the rows of quotients to add. Output: the sums, rounded to the
// storage type. (`add_channels` does the same for one cell in channels-last order.)
// A function computes one vector of columns for all rows before the next vector of columns, so that the tables of
// these columns stay in registers. Neighbouring rows of cells with the same windows are summed once.

#pragma once

#include "../problem.h"
#include "../simd/pick.h"
#include "../simd/scratch.h"

namespace pooltide {
namespace {

// `run` neighbouring rows of the result: each is the sum of the `n` rows of quotients `from`.
template <class T> struct Row {
  const T* const* from;
  int32_t n, run;
};

// Consecutive rows of the result, `length` cells each. Columns are filled from the last to the first: a vector
// that passes the end of its row is overwritten by the next row's first vector. Up to two vectors may be
// written after the last row.
template <class S> struct Strip {
  using T = typename Sum<S>::T;
  const Row<T>* rows;
  int64_t count;
  S* to;
  int64_t length;

  int64_t last(int64_t width) const { return (length - 1) / width * width; }

  // `sum(from, n)` returns the packed sums of the cells w, w + 1, … of a row.
  template <class F> void fill(int64_t w, F sum) const {
    S* at = to + w;
    for (const Row<T>*r = rows, *end = rows + count; r < end; r++) {
      auto v = sum(r->from, r->n);
      for (int32_t k = r->run; k > 0; k--, at += length) write(at, v);
    }
  }
};

// Returns the sum of all lines of n rows; `line(row, j)` loads a vector of line j. The number of lines is J, or
// `most` if J is 0.
template <class V, int J, class T, class F>
inline V add_lines(const T* const* from, int64_t n, int64_t most, F line) {
  V sum{};
  if (n == 0) return sum;
  sum = line(from[0], 0);
  for (int64_t j = 1; j < (J ? J : most); j++) sum += line(from[0], j);
  for (int64_t i = 1; i < n; i++)
    for (int64_t j = 0; j < (J ? J : most); j++) sum += line(from[i], j);
  return sum;
}

// For lines in memory: line j + 1 begins `step` elements after line j.
template <class S, int J> void add_strided(const Strip<S>& strip, int64_t most, int64_t step) {
  using T = typename Sum<S>::T;
  for (int64_t w = strip.last(lanes<S>); w >= 0; w -= lanes<S>)
    strip.fill(w, [=](const T* const* from, int64_t n) {
      auto line = [=](const T* row, int64_t j) { return load(row + w + j * step); };
      return pack(S{}, add_lines<VecOf<S>, J>(from, n, most, line));
    });
}

// For lines that are permutations of their row.
template <class S, int J> void add_picked(const Strip<S>& strip, const Axis& axis) {
  using T = typename Sum<S>::T;
  for (int64_t w = strip.last(lanes<S>); w >= 0; w -= lanes<S>) {
    const Pick<T> pick(axis.first + w, axis.count + w);
    strip.fill(w, [pick](const T* const* from, int64_t n) {
      auto line = [&](const T* row, int64_t j) { return pick(row, (int32_t)j); };
      return pack(S{}, add_lines<VecOf<S>, J>(from, n, J, line));
    });
  }
}

// Stride 2: cells 2i and 2i+1 add one or two of the quotients i and i+1. The two vectors are interleaved.
template <class S, Phase phase> void add_phases(const Strip<S>& strip) {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  constexpr int L = lanes<S>;
  constexpr bool wide_even = phase == Phase::wide_even, wide_odd = phase == Phase::wide_odd;
  for (int64_t w = strip.last(2 * L); w >= 0; w -= 2 * L)
    strip.fill(w, [i = w / 2](const T* const* from, int64_t n) {
      V even{}, odd{};
      for (int64_t r = 0; r < n; r++) {
        V a = load(from[r] + i), b = phase == Phase::alike ? a : load(from[r] + i + 1);
        even += a;
        if (wide_even) even += b;
        if (wide_odd) odd += a;
        if (wide_even || wide_odd) odd += b;
      }
      return pack_interleaved(S{}, even, phase == Phase::alike ? even : odd);
    });
}

// Stride 2, cells in any number of windows. An even and an odd cell are not in the same windows.
template <class S> class WidePhases {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  static constexpr int64_t L = lanes<S>;
  typedef uint64_t Word __attribute__((vector_size(16)));

 public:
  WidePhases(const Axis& axis, int64_t each) : each_(each) {
    for (int n = 0; n < 2; n++) from_[n] = (axis.back - axis.behind[n]) * each, to_[n] = (axis.back + axis.ahead[n]) * each;
  }

  void add(const Strip<S>& strip) const {
    for (int64_t w = strip.last(2 * L); w >= 0; w -= 2 * L)
      strip.fill(w, [this, w](const T* const* from, int64_t n) {
        return pack_interleaved(S{}, sum(from, n, w / 2, 0), sum(from, n, w / 2, 1));
      });
  }

  // The same for cells of `each` channels: sums the even and the odd cells of a row, then writes them alternately. `half`
  // has room for the even or the odd cells of a row, in whole vectors.
  void add_cells(const Strip<S>& strip, S* half) const {
    S* to = strip.to;
    for (const Row<T>*r = strip.rows, *end = r + strip.count; r < end; r++)
      for (int32_t k = 0; k < r->run; k++, to += strip.length) {
        if (k) {
          memcpy(to, to - strip.length, strip.length * sizeof(S));
          continue;
        }
        S* const odd = half + round_up(strip.length / 2 + each_, L) + 2 * L;
        for (int64_t i = 0; i < strip.length / 2 + each_; i += L)
          store(half + i, sum(r->from, r->n, i, 0)), store(odd + i, sum(r->from, r->n, i, 1));
        if (each_ * sizeof(S) <= 16) alternate<Word>(half, odd, to, to + strip.length);
        else alternate<PackedOf<S>>(half, odd, to, to + strip.length);
      }
  }

 private:
  // Returns the sums of a vector of even (0) or odd (1) cells over n rows of quotients.
  POOLTIDE_INLINE V sum(const T* const* from, int64_t n, int64_t i, int odd) const {
    V sum{};
    for (int64_t r = 0; r < n; r++)
      for (const T *q = from[r] + i + from_[odd], *end = from[r] + i + to_[odd]; q < end; q += each_) sum += load(q);
    return sum;
  }

  // Copies whole words P; the next cell overwrites the surplus.
  template <class P> void alternate(const S* even, const S* odd, S* to, const S* end) const {
    for (const S* from = even; to < end; to += each_) {
      for (int64_t c = 0; c < each_; c += sizeof(P) / sizeof(S)) write(to + c, read<P>(from + c));
      from == even ? (from = odd, even += each_) : (from = even, odd += each_);
    }
  }

  int64_t each_, from_[2], to_[2];
};

// 3 × 3 windows with stride 1: each row of quotients is loaded once for three rows of cells. The list `from` of
// the first row holds the rows of quotients of all rows of cells, with rows of zeros at the edges.
template <class S> void add_sliding(const Strip<S>& strip) {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  for (int64_t w = strip.last(lanes<S>); w >= 0; w -= lanes<S>) {
    const T* const* row = strip.rows[0].from;
    V above = (load(row[0] + w) + load(row[0] + w + 1)) + load(row[0] + w + 2);
    V left = load(row[1] + w), middle = load(row[1] + w + 1), right = load(row[1] + w + 2);
    S* to = strip.to + w;
    for (int64_t i = 0; i < strip.count; i++, to += strip.length) {
      const T* below = row[i + 2] + w;
      V sum = ((above + left) + middle) + right;
      above = (left + middle) + right;
      left = load(below), middle = load(below + 1), right = load(below + 2);
      store(to, ((sum + left) + middle) + right);
    }
  }
}

// Writes the channels of one cell: the sums over n rows of `most` lines, `step` elements apart.
template <class S, int J>
void add_channels(const typename Sum<S>::T* const* from, int64_t n, int64_t most, int64_t step, S* to) {
  using T = typename Sum<S>::T;
  for (int64_t c = 0; c < step; c += lanes<S>) {
    auto line = [=](const T* row, int64_t j) { return load(row + c + j * step); };
    store(to + c, add_lines<VecOf<S>, J>(from, n, most, line));
  }
}

}  // namespace
}  // namespace pooltide
