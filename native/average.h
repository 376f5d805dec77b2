// Average: each result cell gathers the quotients of the windows that hold it.
//
//     out[cell] = ((0 + q[1st window]) + q[2nd]) + …      windows ascending in (d, h, w)
//
// A row of windows (od, oh) is divided once and laid out so that the sums of a row of cells run down
// columns of vectors: `most` lines, line j holding for each cell its j-th window's quotient, or +0.
// Adding +0 changes nothing, because no partial sum is ever -0: quotients are taken +0 first. Rows of
// cells that share their windows are summed once and written many times.
//
//     shifted    stride 1: line j is the row itself, j elements on, between zeros
//     spread     lines written out by a permutation in registers
//     gathered   so many lines that they would not fit: cells one by one
//     channels   channels-last: a vector holds channels, so a cell's windows are lines as they lie

#pragma once

#include "problem.h"
#include "sink.h"

namespace pooltide {
namespace {

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

inline bool power_of_two(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits & 0xFFFFFFFFFFFFF) == 0;
}

// Division by an integer. By a power of two, multiplying by the reciprocal rounds the same number.
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
  template <class V> V operator()(V v) const {
    if (how == Divide::not_at_all) return v;
    return how == Divide::by_multiplying ? v * value : v / value;
  }
};

enum class Lines { shifted, spread, gathered, channels };

// What each thread needs, in elements; `slot` is one divided row of windows, laid out in lines.
template <class S> struct Shape {
  using T = typename Sum<S>::T;
  static constexpr int64_t V = lanes<S>;
  Lines lines;
  int64_t row, width, slot, deep, high, quotients, stage;

  explicit Shape(const Problem& p) {
    row = p.channels_last ? p.w.cells * p.channels : p.w.cells;
    width = round_up(p.w.cells, V);
    quotients = p.w.windows + p.w.most + 2 * V;
    deep = larger(p.d.most, 1);
    high = larger(p.h.most, 1);
    int64_t spread = larger(p.w.most, 1) * width;
    if (p.channels_last) {
      lines = Lines::channels, slot = p.w.windows * p.channels + V;
    } else if (p.w.shifted) {
      lines = Lines::shifted, slot = larger(width + p.w.most, p.w.back + p.w.windows) + V;
    } else if (p.w.most <= 1 || deep * high * spread * (int64_t)sizeof(T) <= (1 << 19)) {
      lines = Lines::spread, slot = spread;
    } else {
      lines = Lines::gathered, slot = p.w.windows + V;
    }
    slot = round_up(slot, V);
    int64_t fit = 24576 / (deep * slot * (int64_t)sizeof(T));
    high = smaller(larger(p.h.windows, 1), larger(high, fit));
    stage = Sink<S>::staging(p.channels_last ? larger(p.channels, V) : row);
  }

  int64_t slots() const { return deep * high; }
};

// Cuts one block of memory into aligned arrays; with no block it counts.
class Carve {
 public:
  explicit Carve(void* block) : block_((uintptr_t)block) {}
  template <class X> X* take(int64_t n) {
    X* found = (X*)(block_ + used_);
    used_ += round_up(n * (int64_t)sizeof(X), 64);
    return found;
  }
  int64_t used() const { return used_; }

 private:
  uintptr_t block_;
  int64_t used_ = 0;
};

template <class T, int N, int J>
inline auto column(const T* const* rows, int64_t n, int64_t most, int64_t step, int64_t at) {
  auto sum = load(rows[0] + at);
  for (int64_t j = 1; j < (J ? J : most); j++) sum += load(rows[0] + at + j * step);
  for (int64_t i = 1; i < (N ? N : n); i++)
    for (int64_t j = 0; j < (J ? J : most); j++) sum += load(rows[i] + at + j * step);
  return sum;
}

// Cells 0 … length-1 (and up to a vector more) as sums over n rows of `most` lines, `step` apart.
template <class S, int N, int J>
void add_lines(const typename Sum<S>::T* const* from, int64_t n, int64_t most, int64_t step, S* to,
               int64_t length) {
  using T = typename Sum<S>::T;
  const T* rows[N ? N : 1];
  for (int i = 0; i < N; i++) rows[i] = from[i];
  for (int64_t w = 0; w < length; w += lanes<S>)
    store(to + w, column<T, N, J>(N ? rows : from, n, most, step, w));
}

template <class S>
void add_lines(const typename Sum<S>::T* const* from, int64_t n, int64_t most, int64_t step, S* to,
               int64_t length) {
  if (n == 0 || most == 0) {
    for (int64_t w = 0; w < length; w += lanes<S>) store(to + w, VecOf<S>{});
    return;
  }
#define CASE(N, J) \
  case N * 4 + J: return add_lines<S, N, J>(from, n, most, step, to, length);
  switch ((n < 4 ? n : 0) * 4 + (most < 4 ? most : 0)) {
    CASE(1, 1) CASE(1, 2) CASE(1, 3) CASE(2, 1) CASE(2, 2) CASE(2, 3) CASE(3, 1) CASE(3, 2) CASE(3, 3)
    CASE(0, 1) CASE(0, 2) CASE(0, 3)
    default: return add_lines<S, 0, 0>(from, n, most, step, to, length);
  }
#undef CASE
}

// One thread's work on an average problem.
template <class S> class Average {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  static constexpr int64_t L = lanes<S>;

 public:
  Average(const Problem& p, const Arrays& arrays, void* block)
      : p_(p), arrays_(arrays), shape_(p), carve_(block) {
    slots_ = carve_.take<T>(shape_.slots() * shape_.slot);
    quotients_ = carve_.take<T>(shape_.quotients);
    divisors_ = carve_.take<T>(p.w.windows + L);
    rows_ = carve_.take<const T*>(p.d.most * p.h.most + 1);
    cell_ = carve_.take<const T*>(p.d.most * p.h.most + 1);
    tags_ = carve_.take<int64_t>(shape_.slots());
    line_ = carve_.take<S>(shape_.row + L);
    stage_ = carve_.take<S>(shape_.stage);
  }

  static int64_t scratch(const Problem& p) { return Average(p, Arrays(), nullptr).carve_.used(); }

  void run(int64_t begin, int64_t end) {
    clear();
    int64_t per_image = p_.d.cells * p_.h.cells;
    S* out = (S*)arrays_.out;
    Sink<S> sink(out + begin * shape_.row, out + end * shape_.row, stage_, shape_.stage, arrays_.stream);
    for (int64_t r = begin; r < end;) {
      int64_t image = r / per_image, d = r % per_image / p_.h.cells, h = r % p_.h.cells;
      if (image != image_) open(image);
      int64_t n = window_rows(d, h);
      int64_t run = smaller(p_.h.run[h], end - r);
      if (shape_.lines == Lines::channels) {
        run = 1;
        row_of_channels(n, sink);
      } else {
        row_of_cells(n, run, sink);
      }
      r += run;
    }
    sink.finish();
  }

 private:
  void clear() {
    memset((void*)slots_, 0, shape_.slots() * shape_.slot * sizeof(T));
    memset((void*)quotients_, 0, shape_.quotients * sizeof(T));
    image_ = -1;
    row_key_ = -1;
  }

  // An image is what shares one grad_output plane: a plane, or in channels-last order all channels.
  void open(int64_t image) {
    image_ = image;
    int64_t size = p_.windows() * (p_.channels_last ? p_.channels : 1);
    int64_t images = p_.channels_last ? p_.batch : p_.planes();
    grad_ = (const S*)arrays_.grad + image * size;
    grad_end_ = (const S*)arrays_.grad + images * size;
    for (int64_t i = 0; i < shape_.slots(); i++) tags_[i] = -1;
  }

  int64_t window_rows(int64_t d, int64_t h) {
    int64_t n = 0;
    for (int64_t od = p_.d.first[d]; od < p_.d.first[d] + p_.d.count[d]; od++)
      for (int64_t oh = p_.h.first[h]; oh < p_.h.first[h] + p_.h.count[h]; oh++)
        rows_[n++] = window_row(od, oh);
    return n;
  }

  const T* window_row(int64_t od, int64_t oh) {
    int64_t slot = od % shape_.deep * shape_.high + oh % shape_.high;
    int64_t tag = od * p_.h.windows + oh;
    T* lines = slots_ + slot * shape_.slot;
    if (tags_[slot] == tag) return lines;
    tags_[slot] = tag;
    prepare_divisors(od, oh);
    const S* g = grad_ + tag * p_.w.windows * (p_.channels_last ? p_.channels : 1);
    Divisor<T> by_d(chained() ? p_.d.divisor[od] : 1), by_h(chained() ? p_.h.divisor[oh] : 1);
    switch (shape_.lines) {
      case Lines::channels: divide_channels(g, by_d, by_h, lines); break;
      case Lines::gathered: divide(g, by_d, by_h, lines); break;
      case Lines::shifted: divide_exactly(g, by_d, by_h, lines + p_.w.back); break;
      case Lines::spread:
        divide(g, by_d, by_h, quotients_);
        lay_out(lines);
    }
    return lines;
  }

  bool chained() const { return p_.quotient == Quotient::chained; }

  // The last divisor of each window of a row: they differ along w, and rarely from row to row.
  void prepare_divisors(int64_t od, int64_t oh) {
    double key = p_.quotient == Quotient::product ? p_.d.divisor[od] * p_.h.divisor[oh] : 0;
    if (key == row_key_) return;
    row_key_ = key;
    bool ones = true, powers = true;
    for (int64_t o = 0; o < p_.w.windows; o++) {
      double d = last_divisor(o);
      ones &= d == 1;
      powers &= power_of_two(d);
    }
    row_how_ = ones ? Divide::not_at_all : powers ? Divide::by_multiplying : Divide::by_dividing;
    for (int64_t o = 0; o < p_.w.windows; o++)
      divisors_[o] = T(powers ? 1 / last_divisor(o) : last_divisor(o));
    for (int64_t o = p_.w.windows; o < p_.w.windows + L; o++) divisors_[o] = 1;
  }

  double last_divisor(int64_t o) const {
    if (p_.quotient == Quotient::constant) return p_.divisor;
    return p_.quotient == Quotient::product ? row_key_ * p_.w.divisor[o] : p_.w.divisor[o];
  }

  V quotient(V g, const Divisor<T>& by_d, const Divisor<T>& by_h, V last) const {
    g = by_h(by_d(g));
    if (row_how_ == Divide::by_multiplying) g = g * last;
    if (row_how_ == Divide::by_dividing) g = g / last;
    return g + T(0);
  }

  V quotient_at(const S* g, int64_t o, const Divisor<T>& by_d, const Divisor<T>& by_h) const {
    V v = grad_end_ - (g + o) >= L ? load(g + o) : load_part(g + o, grad_end_ - (g + o));
    return quotient(v, by_d, by_h, load(divisors_ + o));
  }

  // Writes up to a vector too much.
  void divide(const S* g, const Divisor<T>& by_d, const Divisor<T>& by_h, T* to) const {
    for (int64_t o = 0; o < p_.w.windows; o += L) store(to + o, quotient_at(g, o, by_d, by_h));
  }

  // Leaves what stands behind the row: the zeros of a shifted row.
  void divide_exactly(const S* g, const Divisor<T>& by_d, const Divisor<T>& by_h, T* to) const {
    int64_t o = 0;
    for (; o + L <= p_.w.windows; o += L) store(to + o, quotient_at(g, o, by_d, by_h));
    if (o < p_.w.windows) store_part(to + o, quotient_at(g, o, by_d, by_h), p_.w.windows - o);
  }

  void divide_channels(const S* g, const Divisor<T>& by_d, const Divisor<T>& by_h, T* to) const {
    int64_t c = p_.channels;
    for (int64_t o = 0; o < p_.w.windows; o++)
      for (int64_t i = 0; i < c; i += L) {
        const S* from = g + o * c + i;
        V v = grad_end_ - from >= L ? load(from) : load_part(from, grad_end_ - from);
        store(to + o * c + i, quotient(v, by_d, by_h, splat(divisors_[o])));
      }
  }

  void lay_out(T* lines) const {
    const Axis& w = p_.w;
    for (int64_t j = 0; j < w.most; j++, lines += shape_.width)
      for (int64_t i = 0; i < w.cells; i += L) {
        if (w.gentle) {
          spread(quotients_, w.first + i, w.count + i, (int32_t)j, lines + i);
        } else {
          for (int64_t k = i; k < i + L; k++)
            lines[k] = j < w.count[k] ? quotients_[w.first[k] + j] : 0;
        }
      }
  }

  void row_of_cells(int64_t n, int64_t run, Sink<S>& sink) {
    S* to = run > 1 ? line_ : sink.room(shape_.row);
    if (shape_.lines == Lines::gathered) {
      gather(n, to);
    } else {
      int64_t step = shape_.lines == Lines::shifted ? 1 : shape_.width;
      add_lines<S>(rows_, n, p_.w.most, step, to, shape_.row);
    }
    if (run == 1) return sink.commit(to, shape_.row);
    for (int64_t i = 0; i < run; i++) sink.repeat(line_, shape_.row);
  }

  void gather(int64_t n, S* to) const {
    const Axis& w = p_.w;
    for (int64_t i = 0; i < w.cells; i += L) {
      T sums[L] = {};
      for (int64_t k = 0; k < L && i + k < w.cells; k++)
        for (int64_t r = 0; r < n; r++)
          for (int64_t j = 0; j < w.count[i + k]; j++) sums[k] += rows_[r][w.first[i + k] + j];
      store(to + i, load(sums));
    }
  }

  void row_of_channels(int64_t n, Sink<S>& sink) {
    const Axis& w = p_.w;
    for (int64_t i = 0; i < w.cells; i++) {
      for (int64_t r = 0; r < n; r++) cell_[r] = rows_[r] + w.first[i] * p_.channels;
      S* to = sink.room(p_.channels);
      add_lines<S>(cell_, n, w.count[i], p_.channels, to, p_.channels);
      sink.commit(to, p_.channels);
    }
  }

  const Problem& p_;
  const Arrays& arrays_;
  Shape<S> shape_;
  Carve carve_;
  T *slots_, *quotients_, *divisors_;
  const T **rows_, **cell_;
  int64_t* tags_;
  S *line_, *stage_;
  const S *grad_ = nullptr, *grad_end_ = nullptr;
  int64_t image_ = -1;
  double row_key_ = -1;
  Divide row_how_ = Divide::by_dividing;
};

// One window holds the plane: its quotient is every cell. Planes are divided a vector at a time.
template <class S> class Whole {
  using T = typename Sum<S>::T;
  static constexpr int64_t L = lanes<S>, kPiece = 4096;

 public:
  static int64_t scratch(const Problem&) { return Sink<S>::staging(kPiece) * sizeof(S); }

  static void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* block) {
    int64_t cells = p.cells();
    const S* grad = (const S*)arrays.grad;
    S* out = (S*)arrays.out;
    Sink<S> sink(out + begin * cells, out + end * cells, (S*)block, Sink<S>::staging(kPiece),
                 arrays.stream);
    bool chained = p.quotient == Quotient::chained;
    double product = p.d.divisor[0] * p.h.divisor[0] * p.w.divisor[0];
    double single = p.quotient == Quotient::constant ? p.divisor : product;
    Divisor<T> by_d(chained ? p.d.divisor[0] : single), by_h(chained ? p.h.divisor[0] : 1),
        by_w(chained ? p.w.divisor[0] : 1);
    for (int64_t i = begin; i < end; i += L) {
      int64_t n = smaller(L, end - i);
      auto q = by_w(by_h(by_d(load_part(grad + i, n)))) + T(0);
      S values[L];
      store(values, q);
      for (int64_t k = 0; k < n; k++) fill(values[k], cells, sink);
    }
    sink.finish();
  }

 private:
  struct Piece { S cells[L]; };

  static void fill(S value, int64_t cells, Sink<S>& sink) {
    Piece piece;
    for (int i = 0; i < L; i++) piece.cells[i] = value;
    while (cells > 0) {
      int64_t n = smaller(cells, kPiece);
      S* to = sink.room(n);
      for (int64_t i = 0; i < n; i += L) write(to + i, piece);
      sink.commit(to, n);
      cells -= n;
    }
  }
};

}  // namespace
}  // namespace pooltide
