// Quotients of an average gradient: each gradient is divided by the divisor of its window.
//
// The divisor is one number (`constant`, `product`) or one number per axis (`chained`): then the gradient is
// divided by them one after the other. Each division is rounded once.

#pragma once

#include "../problem.h"
#include "../simd/lanes.h"
#include "../simd/scratch.h"

namespace pooltide {
namespace {

constexpr int64_t kPrefetchBytes = 1024;  // bytes between a load and its prefetch

inline int64_t modulo(int64_t n, int64_t m) { return n < m ? n : (int32_t)n % (int32_t)m; }

inline bool power_of_two(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits & 0xFFFFFFFFFFFFF) == 0;
}

// How to divide by an integer. For a power of two, multiplying by the reciprocal rounds to the same number.
enum class Divide { not_at_all, by_multiplying, by_dividing };

inline Divide how_to_divide(double d) {
  if (d == 1) return Divide::not_at_all;
  return power_of_two(d) ? Divide::by_multiplying : Divide::by_dividing;
}

template <class T> struct Divisor {
  Divide how;
  T value;
  explicit Divisor(double d)
      : how(how_to_divide(d)), value(how == Divide::by_multiplying ? T(1 / d) : T(d)) {}
};

// The divisors of window (od, oh, ow). With ow = -1: those that all windows of row (od, oh) share.
// Constructed in place and read field by field: a copy would wait for the stores just made.
template <class T> struct Division {
  Divisor<T> first, second, third;
  Division(const Problem& p, int64_t od, int64_t oh, int64_t ow = -1)
      : first(chained(p) ? double(p.d.divisor[od]) : ow < 0 ? 1 : constant(p) ? p.divisor : product(p, od, oh, ow)),
        second(chained(p) ? p.h.divisor[oh] : 1),
        third(chained(p) && ow >= 0 ? p.w.divisor[ow] : 1) {}

 private:
  static bool chained(const Problem& p) { return p.quotient == Quotient::chained; }
  static bool constant(const Problem& p) { return p.quotient == Quotient::constant; }
  static double product(const Problem& p, int64_t od, int64_t oh, int64_t ow) {
    return double(p.d.divisor[od]) * p.h.divisor[oh] * p.w.divisor[ow];
  }
};

template <class T, class V> inline V divided(V v, Divide how, T by) {
  if (how == Divide::not_at_all) return v;
  return how == Divide::by_multiplying ? v * by : v / by;
}

// `rows` consecutive rows of n gradients. Nothing may be read from `end` on.
template <class S> struct GradRows {
  const S* first;
  int64_t rows, n;
  const S* end;
};

// Writes the quotients of the rows to `to`, `step` elements apart. `quotient(v, o)` divides the vector that
// begins at element o of all rows. Adding 0 turns -0 into +0. Writes whole vectors; rows ascend, so the next row
// overwrites the surplus.
template <class S, class T, class F> inline void divide_rows(const GradRows<S>& grad, int64_t step, T* to, F quotient) {
  const S* g = grad.first;
  const int64_t n = grad.n;
  for (int64_t from = 0, rows = grad.rows; rows > 0; rows--, g += n, from += n, to += step) {
    int64_t inside = smaller(n, (grad.end - g) / lanes<S> * lanes<S>), o = 0;
    for (; o < inside; o += lanes<S>) {
      __builtin_prefetch(g + o + kPrefetchBytes / sizeof(S));
      store(to + o, quotient(load(g + o), from + o) + T(0));
    }
    if (o < n) store(to + o, quotient(load_part(g + o, n - o), from + o) + T(0));
  }
}

// Divides all elements by the same divisors, then element o of each row by last[o] unless `last` is null.
template <class S, class T>
inline void divide(const GradRows<S>& grad, const Division<T>& by, const T* last, int64_t step, T* to) {
  const Divide how1 = by.first.how, how2 = by.second.how, how3 = by.third.how;
  const T by1 = by.first.value, by2 = by.second.value, by3 = by.third.value;
  using V = VecOf<S>;
  if (!last && how2 == Divide::not_at_all && how3 == Divide::not_at_all) {
    if (how1 == Divide::by_multiplying) return divide_rows(grad, step, to, [=](V v, int64_t) { return v * by1; });
    return divide_rows(grad, step, to, [=](V v, int64_t) { return divided(v, how1, by1); });
  }
  divide_rows(grad, step, to, [=](V v, int64_t o) {
    v = divided(divided(divided(v, how1, by1), how2, by2), how3, by3);
    return last ? v / load(last + o) : v;
  });
}

// The divisors of all gradients of an image: n tables of `size` elements; a gradient is divided by each table in
// order.
template <class T> struct PlaneDivisors {
  T* values;
  int64_t size, n = 0;

  static int64_t most(const Problem& p) { return p.quotient == Quotient::chained ? 3 : 1; }
  void fill(const Problem& p) {
    n = 0;
    auto product = [&](int64_t d, int64_t h, int64_t w) {
      return double(p.d.divisor[d]) * p.h.divisor[h] * p.w.divisor[w];
    };
    if (p.quotient != Quotient::chained) return fill(product, p);
    fill([&](int64_t d, int64_t, int64_t) { return double(p.d.divisor[d]); }, p);
    fill([&](int64_t, int64_t h, int64_t) { return double(p.h.divisor[h]); }, p);
    fill([&](int64_t, int64_t, int64_t w) { return double(p.w.divisor[w]); }, p);
  }

  template <class S> void divide(const GradRows<S>& grad, int64_t step, T* to) const {
    const T *a = values, *b = a + size, *c = b + size;
    using V = VecOf<S>;
    if (n == 1) return divide_rows(grad, step, to, [=](V v, int64_t o) { return v / load(a + o); });
    if (n == 2) return divide_rows(grad, step, to, [=](V v, int64_t o) { return v / load(a + o) / load(b + o); });
    divide_rows(grad, step, to, [=](V v, int64_t o) { return v / load(a + o) / load(b + o) / load(c + o); });
  }

 private:
  // Adds a table. A table of ones is left out.
  template <class F> void fill(F divisor, const Problem& p) {
    T* to = values + n * size;
    bool divides = false;
    for (int64_t d = 0; d < p.d.windows; d++)
      for (int64_t h = 0; h < p.h.windows; h++)
        for (int64_t w = 0; w < p.w.windows; w++)
          for (int64_t c = p.channels_last ? p.channels : 1; c > 0; c--) divides |= (*to++ = T(divisor(d, h, w))) != 1;
    for (T* end = values + (n + 1) * size; to < end;) *to++ = 1;
    n += divides;
  }
};

}  // namespace
}  // namespace pooltide
