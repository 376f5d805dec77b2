// Gradients of averages over small planes: a vector holds one cell of many planes.
//
// Rows that are shorter than a vector would leave most of it empty. So a group of as many planes as a vector has
// lanes is transposed: each window is then one vector, each cell a sum of such vectors, in the order of windows.
// A unit is a plane.

#pragma once

#include "quotients.h"

namespace pooltide {
namespace {

// Writes the transpose of a matrix: to[j * lines + i] = from[i * length + j]. Reads up to three elements after the
// last one.
template <class T> inline void transpose(const T* from, int64_t lines, int64_t length, T* to) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T))));
  int64_t fours = lines / 4 * 4;
  for (int64_t i = fours; i < lines; i++)
    for (int64_t j = 0; j < length; j++) to[j * lines + i] = from[i * length + j];
  for (int64_t j = 0; j < length; j += 4) {
    int64_t columns = smaller(4, length - j);
    for (int64_t i = 0; i < fours; i += 4) {
      const T* at = from + i * length + j;
      Four a = read<Four>(at), b = read<Four>(at + length), c = read<Four>(at + 2 * length), d = read<Four>(at + 3 * length);
      Four ac = __builtin_shufflevector(a, c, 0, 4, 1, 5), bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
      Four ca = __builtin_shufflevector(a, c, 2, 6, 3, 7), db = __builtin_shufflevector(b, d, 2, 6, 3, 7);
      T* out = to + j * lines + i;
      write(out, __builtin_shufflevector(ac, bd, 0, 4, 1, 5));
      if (columns > 1) write(out + lines, __builtin_shufflevector(ac, bd, 2, 6, 3, 7));
      if (columns > 2) write(out + 2 * lines, __builtin_shufflevector(ca, db, 0, 4, 1, 5));
      if (columns > 3) write(out + 3 * lines, __builtin_shufflevector(ca, db, 2, 6, 3, 7));
    }
  }
}

template <class S> class SmallPlanes {
  using T = typename Sum<S>::T;
  using V = typename Lanes<T>::V;
  static constexpr int64_t L = lanes<S>, kLongRow = L * 3 / 4, kCells = 256;

 public:
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (p.kind != Kind::average_gradient) return "it computes gradients of averages";
    if (p.channels_last) return "the arrays are channels-last";
    if (!p.w.first) return "the row is too long for a table per cell";
    if (L < 4) return "a vector has too few lanes";
    if (ignore_speed) return nullptr;
    if (p.w.cells > kLongRow) return "rows fill vectors";
    if (p.cells() > kCells || p.windows() > kCells) return "planes are large";
    return p.planes() < L ? "planes are few" : nullptr;
  }
  static int64_t units(const Problem& p) { return p.planes(); }
  static int64_t scratch(const Problem& p, const Arrays& arrays) { return SmallPlanes(p, arrays, nullptr).carve_.used(); }
  static void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* scratch, Fault&) {
    SmallPlanes self(p, arrays, scratch);
    for (int64_t plane = begin; plane < end; plane += L) self.compute(plane, smaller(L, end - plane));
  }

 private:
  SmallPlanes(const Problem& p, const Arrays& arrays, void* scratch) : p_(p), arrays_(arrays), carve_(scratch) {
    int64_t most = L * larger(p.windows(), p.cells()) + 4 * L;
    planes_ = carve_.take<T>(most);
    windows_ = carve_.take<T>(L * p.windows());
    cells_ = carve_.take<T>(L * p.cells() + 4);
  }

  void compute(int64_t plane, int64_t n) {
    int64_t windows = p_.windows(), cells = p_.cells(), i = 0;
    const S* g = (const S*)arrays_.grad + plane * windows;
    for (; i + L <= n * windows; i += L) store(planes_ + i, load(g + i));
    if (i < n * windows) store(planes_ + i, load_part(g + i, n * windows - i)), i += L;
    if (n < L) memset((void*)(planes_ + n * windows), 0, (L - n) * windows * sizeof(T));
    transpose(planes_, L, windows, windows_);
    divide_windows();
    add_windows();
    transpose(cells_, cells, L, planes_);
    S* out = (S*)arrays_.out + plane * cells;
    for (i = 0; i + L <= n * cells; i += L) store(out + i, load(planes_ + i));
    if (i < n * cells) store_part(out + i, load(planes_ + i), n * cells - i);
  }

  void divide_windows() {
    T* q = windows_;
    for (int64_t od = 0; od < p_.d.windows; od++)
      for (int64_t oh = 0; oh < p_.h.windows; oh++)
        for (int64_t ow = 0; ow < p_.w.windows; ow++, q += L) {
          const Division<T> by(p_, od, oh, ow);
          V v = divided(divided(divided(load(q), by.first.how, by.first.value), by.second.how, by.second.value), by.third.how, by.third.value);
          store(q, v + T(0));
        }
  }

  void add_windows() {
    const Axis &d = p_.d, &h = p_.h, &w = p_.w;
    T* to = cells_;
    for (int64_t i = 0; i < d.cells; i++)
      for (int64_t j = 0; j < h.cells; j++)
        for (int64_t k = 0; k < w.cells; k++, to += L) {
          V sum{};
          for (int64_t od = d.first[i]; od < d.first[i] + d.count[i]; od++)
            for (int64_t oh = h.first[j]; oh < h.first[j] + h.count[j]; oh++) {
              const T* q = windows_ + ((od * h.windows + oh) * w.windows + w.first[k]) * L;
              for (int64_t n = w.count[k]; n > 0; n--, q += L) sum += load(q);
            }
          store(to, sum);
        }
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  T *planes_, *windows_, *cells_;
};

}  // namespace
}  // namespace pooltide
