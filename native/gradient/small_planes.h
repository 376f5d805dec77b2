// Gradients of averages for planes with short rows. A row shorter than a vector would leave lanes empty, so a vector
// holds the same cell of many planes.
//
// Input: grad_output of a group of planes: as many planes as 1, 2 or 4 vectors have lanes. Output: grad_input of the
// group. The kernel transposes and divides the gradients of the group, adds for each cell the quotients of its
// windows in ascending order, and transposes the sums back, a few rows at a time. Groups of 2 or 4 vectors are faster,
// because the additions of different vectors do not depend on each other. A unit is a group of planes.

#pragma once

#include "line_layout.h"
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
  static constexpr int64_t L = lanes<S>, kShortRow = L * 3 / 4;
  static constexpr int64_t kCells = 256;           // whose sums are kept: they stay in the first-level cache
  static constexpr int64_t kHeld = 27;             // windows per cell from which additions outweigh transpositions
  static constexpr int64_t kQuotients = 96 << 10;  // of a group; they stay in the second-level cache
  static constexpr int64_t kGroups = 8;            // so that several threads have work

 public:
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (p.channels_last) return "the arrays are channels-last";
    if (!p.w.first) return "the row is too long for a table per cell";
    if (L < 4) return "a vector has too few lanes";
    if (ignore_speed) return nullptr;
    if (p.w.cells > L) return "rows fill vectors";
    if (p.windows() * L > kQuotients) return "planes have many windows";
    // Other kernels keep the lists of the rows that each row of cells adds, unless these are many.
    bool listed = p.d.pairs * (p.h.pairs + p.h.cells) + 2 <= LineLayout<S>::kLists;
    bool small = p.w.cells <= kShortRow && (p.cells() <= kCells || !listed);
    if (!small && p.d.most * p.h.most * p.w.most < kHeld) return "planes are large or rows fill vectors, and cells are in few windows";
    return p.planes() < L ? "planes are few" : nullptr;
  }
  static int64_t units(const Problem& p) { return (p.planes() + vectors(p) * L - 1) / (vectors(p) * L); }
  static int64_t scratch(const Problem& p, const Arrays& arrays) { return SmallPlanes(p, arrays, nullptr).carve_.used(); }
  static void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* scratch, Fault&) {
    SmallPlanes self(p, arrays, scratch);
    for (; begin < end; begin++) self.compute(begin * self.lanes_);
  }

 private:
  // Returns how many vectors a group of planes has.
  static int64_t vectors(const Problem& p) {
    for (int64_t n = 4; n > 1; n /= 2)
      if (p.planes() >= kGroups * n * L && p.windows() * n * L <= kQuotients) return n;
    return 1;
  }

  SmallPlanes(const Problem& p, const Arrays& arrays, void* scratch) : p_(p), arrays_(arrays), carve_(scratch), lanes_(vectors(p) * L) {
    int64_t kept = (arrays.tight ? 2 * L : kCells) * L / lanes_;
    rows_ = smaller(larger(kept / p.w.cells, 1), p.d.cells * p.h.cells);
    int64_t cells = rows_ * p.w.cells;
    planes_ = carve_.take<T>(lanes_ * larger(p.windows(), cells) + 4 * L);
    windows_ = carve_.take<T>(lanes_ * p.windows());
    cells_ = carve_.take<T>(lanes_ * cells + 4);
  }

  // Computes a group of planes from `plane` on.
  void compute(int64_t plane) {
    int64_t windows = p_.windows(), cells = p_.cells(), n = smaller(lanes_, p_.planes() - plane), i = 0;
    const S* g = (const S*)arrays_.grad + plane * windows;
    for (; i + L <= n * windows; i += L) store(planes_ + i, load(g + i));
    if (i < n * windows) store(planes_ + i, load_part(g + i, n * windows - i));
    if (n < lanes_) memset((void*)(planes_ + n * windows), 0, (lanes_ - n) * windows * sizeof(T));
    transpose(planes_, lanes_, windows, windows_);
    divide_windows();
    S* out = (S*)arrays_.out + plane * cells;
    for (int64_t row = 0, rows = p_.d.cells * p_.h.cells; row < rows; row += rows_) {
      int64_t end = smaller(row + rows_, rows), from = row * p_.w.cells, count = (end - row) * p_.w.cells;
      if (lanes_ == L) add_windows<1>(row, end);
      else lanes_ == 2 * L ? add_windows<2>(row, end) : add_windows<4>(row, end);
      transpose(cells_, count, lanes_, planes_);
      if (count == cells) put(planes_, out, n * cells);
      else
        for (i = 0; i < n; i++) put(planes_ + i * count, out + i * cells + from, count);
    }
  }

  static void put(const T* from, S* to, int64_t n) {
    int64_t i = 0;
    for (; i + L <= n; i += L) store(to + i, load(from + i));
    if (i < n) store_part(to + i, load(from + i), n - i);
  }

  void divide_windows() {
    T* q = windows_;
    for (int64_t od = 0; od < p_.d.windows; od++)
      for (int64_t oh = 0; oh < p_.h.windows; oh++)
        for (int64_t ow = 0; ow < p_.w.windows; ow++) {
          const Division<T> by(p_, od, oh, ow);
          for (T* end = q + lanes_; q < end; q += L) {
            V v = divided(divided(divided(load(q), by.first.how, by.first.value), by.second.how, by.second.value), by.third.how, by.third.value);
            store(q, v + T(0));
          }
        }
  }

  // Computes the sums of the cells of the rows from … to - 1, n vectors for each cell. The number of row (d, h) is
  // d * h.cells + h.
  template <int n> void add_windows(int64_t from, int64_t to) {
    const Axis &d = p_.d, &h = p_.h, &w = p_.w;
    T* out = cells_;
    for (; from < to; from++) {
      int64_t i = from / h.cells, j = from % h.cells;
      for (int64_t k = 0; k < w.cells; k++, out += n * L) {
        V sums[n] = {};
        for (int64_t od = d.first[i]; od < d.first[i] + d.count[i]; od++)
          for (int64_t oh = h.first[j]; oh < h.first[j] + h.count[j]; oh++) {
            const T* q = windows_ + ((od * h.windows + oh) * w.windows + w.first[k]) * (n * L);
            for (int64_t left = w.count[k]; left > 0; left--, q += n * L)
#pragma GCC unroll 4
              for (int v = 0; v < n; v++) sums[v] += load(q + v * L);
          }
#pragma GCC unroll 4
        for (int v = 0; v < n; v++) store(out + v * L, sums[v]);
      }
    }
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  const int64_t lanes_;  // planes of a group
  int64_t rows_;         // whose sums are kept
  T *planes_, *windows_, *cells_;
};

}  // namespace
}  // namespace pooltide
