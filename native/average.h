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
//     picked     a line is a permutation of the row, made in registers where it is added
//     spread     lines written out, where they are many or the processor has no such permutation
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

inline int64_t modulo(int64_t n, int64_t m) { return n < m ? n : (int32_t)n % (int32_t)m; }

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
};

// The quotient of one window, or with no `ow` what all windows of a row are divided by first.
// Built in place and read field by field: copies would wait for the stores just made.
template <class T> struct Division {
  Divisor<T> first, second, third;
  Division(const Problem& p, int64_t od, int64_t oh, int64_t ow = -1)
      : first(chained(p) ? p.d.divisor[od] : ow < 0 ? 1 : constant(p) ? p.divisor : product(p, od, oh, ow)),
        second(chained(p) ? p.h.divisor[oh] : 1),
        third(chained(p) && ow >= 0 ? p.w.divisor[ow] : 1) {}

 private:
  static bool chained(const Problem& p) { return p.quotient == Quotient::chained; }
  static bool constant(const Problem& p) { return p.quotient == Quotient::constant; }
  static double product(const Problem& p, int64_t od, int64_t oh, int64_t ow) {
    return p.d.divisor[od] * p.h.divisor[oh] * p.w.divisor[ow];
  }
};

template <class T, class V> inline V divided(V v, Divide how, T by) {
  if (how == Divide::not_at_all) return v;
  return how == Divide::by_multiplying ? v * by : v / by;
}

// Quotients of `n` elements at `g`, the last divisor of each in `last` if given; normal zeros only.
// Reads nothing from `end` on; writes up to a vector too much.
template <class S, class T>
inline void divide(const S* g, int64_t n, const S* end, const Division<T>& by, const T* last, T* to) {
  const Divide how1 = by.first.how, how2 = by.second.how, how3 = by.third.how;
  const T by1 = by.first.value, by2 = by.second.value, by3 = by.third.value;
  auto quotient = [=](VecOf<S> v, int64_t o) {
    v = divided(divided(divided(v, how1, by1), how2, by2), how3, by3);
    return (last ? v / load(last + o) : v) + T(0);
  };
  int64_t inside = smaller(n, (end - g) / lanes<S> * lanes<S>), o = 0;
  for (; o < inside; o += lanes<S>) {
    __builtin_prefetch(g + o + n);
    store(to + o, quotient(load(g + o), o));
  }
  if (o < n) store(to + o, quotient(load_part(g + o, n - o), o));
}

enum class Lines { shifted, picked, spread, gathered, channels };

// What each thread needs, in elements; `slot` is one divided row of windows, laid out in lines.
template <class S> struct Shape {
  using T = typename Sum<S>::T;
  static constexpr int64_t V = lanes<S>;
  Lines lines;
  int64_t row, width, slot, offset, deep, high, rows, alike, quotients, stage;

  explicit Shape(const Problem& p) {
    offset = 0;
    row = p.channels_last ? p.w.cells * p.channels : p.w.cells;
    width = round_up(p.w.cells, V);
    rows = larger(1, smaller(p.h.windows, 2048 / (p.w.windows + 1)));
    quotients = p.channels_last ? 0 : rows * p.w.windows + p.w.most + 2 * V;
    deep = larger(p.d.most, 1);
    high = larger(p.h.most, 1);
    int64_t spread = larger(p.w.most, 1) * width;
    if (p.channels_last) {
      lines = Lines::channels, slot = p.w.windows * p.channels + V;
    } else if (p.w.shifted) {
      lines = Lines::shifted, offset = round_up(p.w.back, V) - p.w.back;
      slot = offset + larger(width + p.w.most, p.w.back + p.w.windows) + V;
    } else if (Pick<T>::quick && p.w.gentle && p.w.most <= 3) {
      lines = Lines::picked, slot = p.w.windows + p.w.most + 2 * V;
    } else if (p.w.most <= 1 || deep * high * spread * (int64_t)sizeof(T) <= (1 << 19)) {
      lines = Lines::spread, slot = spread;
    } else {
      lines = Lines::gathered, slot = p.w.windows + V;
    }
    slot = round_up(slot, V);
    int64_t fit = 12288 / (deep * slot * (int64_t)sizeof(T));
    high = smaller(larger(p.h.windows, 1), larger(high, fit));
    stage = Sink<S>::staging(p.channels_last ? p.channels : row);
    bool single = lines == Lines::channels || lines == Lines::gathered;
    alike = single ? 1 : larger(1, stage / 2 / larger(row, 1));  // rows written at once
  }

  int64_t slots() const { return deep * high; }
};

// The lines of one row of windows; `width` cells each, padding included.
template <class T> void spread_lines(const Axis& w, const T* from, T* lines, int64_t width) {
  const int32_t *first = w.first, *count = w.count;
  int32_t most = (int32_t)w.most;
  for (int32_t j = 0; j < most; j++, lines += width)
    if (w.gentle) {
      for (int64_t i = 0; i < width; i += Lanes<T>::n)
        store(lines + i, Pick<T>(first + i, count + i)(from, j));
    } else {
      for (int64_t i = 0; i < width; i++) lines[i] = j < count[i] ? from[first[i] + j] : 0;
    }
}

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

// Where sums go: `rows` rows of `length` cells, all the same. Up to a vector more may be written.
template <class S> struct Target {
  S* to;
  int64_t length, rows;

  // Vectors are written from the last to the first, so that what is written too much of one row is
  // overwritten by the next row's first vector.
  template <class F> void fill(F sum) const {
    S* const start = to;
    const int64_t step = length, end = rows * length;
    for (int64_t w = (step - 1) / lanes<S> * lanes<S>; w >= 0; w -= lanes<S>) {
      PackedOf<S> v = pack(S{}, sum(w));
      write(start + w, v);
      for (int64_t r = step; r < end; r += step) write(start + r + w, v);
    }
  }
};

// Sums over n rows of `most` lines, `step` apart.
template <class S, int N, int J>
void add_lines(const typename Sum<S>::T* const* from, int64_t n, int64_t most, int64_t step,
               const Target<S>& to) {
  using T = typename Sum<S>::T;
  const T* rows[N ? N : 1];
  for (int i = 0; i < N; i++) rows[i] = from[i];
  to.fill([&](int64_t w) { return column<T, N, J>(N ? rows : from, n, most, step, w); });
}

// The same where line j of a row is picked from it.
template <class S, int N, int J>
void add_picked(const typename Sum<S>::T* const* from, int64_t n, const Axis& axis, const Target<S>& to) {
  using T = typename Sum<S>::T;
  const T* rows[N ? N : 1];
  for (int i = 0; i < N; i++) rows[i] = from[i];
  const int32_t *first = axis.first, *count = axis.count;
  to.fill([&](int64_t w) {
    const Pick<T> pick(first + w, count + w);
    const T* const* row = N ? rows : from;
    auto sum = pick(row[0], 0);
    for (int j = 1; j < J; j++) sum += pick(row[0], j);
    for (int64_t i = 1; i < (N ? N : n); i++)
      for (int j = 0; j < J; j++) sum += pick(row[i], j);
    return sum;
  });
}

template <class S>
inline void add_picked(const typename Sum<S>::T* const* from, int64_t n, const Axis& axis, const Target<S>& to) {
  if (n == 0 || axis.most == 0) return to.fill([](int64_t) { return VecOf<S>{}; });
#define CASE(N, J) \
  case N * 4 + J: return add_picked<S, N, J>(from, n, axis, to);
  switch ((n < 4 ? n : 0) * 4 + axis.most) {
    CASE(1, 1) CASE(1, 2) CASE(1, 3) CASE(2, 1) CASE(2, 2) CASE(2, 3) CASE(3, 1) CASE(3, 2) CASE(3, 3)
    CASE(0, 1) CASE(0, 2) CASE(0, 3)
  }
#undef CASE
}

template <class S>
inline void add_lines(const typename Sum<S>::T* const* from, int64_t n, int64_t most, int64_t step,
                      const Target<S>& to) {
  if (n == 0 || most == 0) return to.fill([](int64_t) { return VecOf<S>{}; });
#define CASE(N, J) \
  case N * 4 + J: return add_lines<S, N, J>(from, n, most, step, to);
  switch ((n < 4 ? n : 0) * 4 + (most < 4 ? most : 0)) {
    CASE(1, 1) CASE(1, 2) CASE(1, 3) CASE(2, 1) CASE(2, 2) CASE(2, 3) CASE(3, 1) CASE(3, 2) CASE(3, 3)
    CASE(0, 1) CASE(0, 2) CASE(0, 3)
    default: return add_lines<S, 0, 0>(from, n, most, step, to);
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
      : p_(p), arrays_(arrays), shape_(p), even_(p, 0, 0, p.w.windows ? 0 : -1), carve_(block) {
    slots_ = carve_.take<T>(shape_.slots() * shape_.slot);
    quotients_ = carve_.take<T>(shape_.quotients);
    divisors_ = carve_.take<T>(p.w.windows + L);
    rows_ = carve_.take<const T*>(p.d.most * p.h.most + 1);
    cell_ = carve_.take<const T*>(p.d.most * p.h.most + 1);
    tags_ = carve_.take<int64_t>(shape_.slots());
    stage_ = carve_.take<S>(shape_.stage);
  }

  static int64_t scratch(const Problem& p) { return Average(p, Arrays(), nullptr).carve_.used(); }

  void run(int64_t begin, int64_t end) {
    clear();
    S* out = (S*)arrays_.out;
    Sink<S> sink(out + begin * shape_.row, out + end * shape_.row, stage_, shape_.stage, arrays_.stream);
    int64_t h = begin % p_.h.cells, d = begin / p_.h.cells % p_.d.cells;
    open(begin / p_.h.cells / p_.d.cells);
    for (int64_t left = end - begin; left > 0;) {
      int64_t n = window_rows(d, h);
      int64_t run = smaller(smaller(p_.h.run[h], left), shape_.alike);
      shape_.lines == Lines::channels ? row_of_channels(n, sink) : row_of_cells(n, run, sink);
      left -= run;
      if ((h += run) < p_.h.cells || left == 0) continue;
      h = 0;
      if (++d < p_.d.cells) continue;
      d = 0;
      open(image_ + 1);
    }
    sink.finish();
  }

 private:
  void clear() {
    if (shape_.lines == Lines::shifted)
      memset((void*)slots_, 0, shape_.slots() * shape_.slot * sizeof(T));
    for (int64_t i = 0; i < shape_.slots(); i++) tags_[i] = -1;
  }

  // An image is what shares one grad_output plane: a plane, or in channels-last order all channels.
  void open(int64_t image) {
    image_ = image;
    int64_t size = p_.windows() * (p_.channels_last ? p_.channels : 1);
    int64_t images = p_.channels_last ? p_.batch : p_.planes();
    grad_ = (const S*)arrays_.grad + image * size;
    grad_end_ = (const S*)arrays_.grad + images * size;
  }

  int64_t window_rows(int64_t d, int64_t h) {
    int64_t n = 0;
    for (int64_t od = p_.d.first[d]; od < p_.d.first[d] + p_.d.count[d]; od++)
      for (int64_t oh = p_.h.first[h]; oh < p_.h.first[h] + p_.h.count[h]; oh++)
        rows_[n++] = window_row(od, oh);
    return n;
  }

  const T* window_row(int64_t od, int64_t oh) {
    int64_t slot = modulo(od, shape_.deep) * shape_.high + modulo(oh, shape_.high);
    int64_t row = (image_ * p_.d.windows + od) * p_.h.windows + oh;
    T* lines = slots_ + slot * shape_.slot + shape_.offset;
    if (tags_[slot] == row) return lines;
    tags_[slot] = row;
    if (shape_.lines == Lines::channels) {
      divide_channels(od, oh, lines);
      return lines;
    }
    if (shape_.lines == Lines::picked) {
      divide_row(od, oh, lines);
      return lines;
    }
    if (shape_.lines == Lines::shifted) {
      divide_row(od, oh, lines + p_.w.back);
      store(lines + p_.w.back + p_.w.windows, typename Lanes<T>::V{});
      return lines;
    }
    if (row < divided_from_ || row >= divided_to_) divide_rows(od, oh);
    const T* from = quotients_ + (row - divided_from_) * p_.w.windows;
    if (shape_.lines == Lines::spread) {
      spread_lines(p_.w, from, lines, shape_.width);
    } else {
      copy_vectors(lines, from, p_.w.windows);
    }
    return lines;
  }

  const S* grad_row(int64_t od, int64_t oh) const {
    return grad_ + (od * p_.h.windows + oh) * p_.w.windows * (p_.channels_last ? p_.channels : 1);
  }

  // Divides a few rows at once, from (od, oh) on: where all divisors are equal, without regard to
  // rows, so that no vector is partly empty.
  void divide_rows(int64_t od, int64_t oh) {
    int64_t n = smaller(shape_.rows, p_.h.windows - oh);
    divided_from_ = (image_ * p_.d.windows + od) * p_.h.windows + oh;
    divided_to_ = divided_from_ + n;
    const S* g = grad_row(od, oh);
    if (p_.even) return divide<S, T>(g, n * p_.w.windows, grad_end_, even_, nullptr, quotients_);
    for (int64_t i = 0; i < n; i++) divide_row(od, oh + i, quotients_ + i * p_.w.windows);
  }

  void divide_row(int64_t od, int64_t oh, T* to) {
    const S* g = grad_row(od, oh);
    if (p_.even) return divide<S, T>(g, p_.w.windows, grad_end_, even_, nullptr, to);
    prepare_divisors(od, oh);
    divide(g, p_.w.windows, grad_end_, Division<T>(p_, od, oh), divisors_, to);
  }

  // The last divisor of each window of a row; they rarely change from row to row.
  void prepare_divisors(int64_t od, int64_t oh) {
    double key = p_.quotient == Quotient::product ? p_.d.divisor[od] * p_.h.divisor[oh] : 1;
    if (key == divisors_key_) return;
    divisors_key_ = key;
    for (int64_t o = 0; o < p_.w.windows; o++) divisors_[o] = T(key * p_.w.divisor[o]);
    for (int64_t o = p_.w.windows; o < p_.w.windows + L; o++) divisors_[o] = 1;
  }

  void divide_channels(int64_t od, int64_t oh, T* to) const {
    const S* g = grad_row(od, oh);
    for (int64_t o = 0; o < p_.w.windows; o++, g += p_.channels, to += p_.channels)
      divide<S, T>(g, p_.channels, grad_end_, Division<T>(p_, od, oh, o), nullptr, to);
  }

  void row_of_cells(int64_t n, int64_t run, Sink<S>& sink) {
    S* to = sink.room(run * shape_.row);
    if (shape_.lines == Lines::gathered) {
      gather(n, to);
    } else if (shape_.lines == Lines::picked) {
      add_picked<S>(rows_, n, p_.w, {to, shape_.row, run});
    } else {
      int64_t step = shape_.lines == Lines::shifted ? 1 : shape_.width;
      add_lines<S>(rows_, n, p_.w.most, step, {to, shape_.row, run});
    }
    sink.commit(to, run * shape_.row);
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
      add_lines<S>(cell_, n, w.count[i], p_.channels, {to, p_.channels, 1});
      sink.commit(to, p_.channels);
    }
  }

  const Problem& p_;
  const Arrays& arrays_;
  const Shape<S> shape_;
  const Division<T> even_;
  Carve carve_;
  T *slots_, *quotients_, *divisors_;
  const T **rows_, **cell_;
  int64_t* tags_;
  S* stage_;
  const S *grad_ = nullptr, *grad_end_ = nullptr;
  int64_t image_ = -1, divided_from_ = 0, divided_to_ = 0;
  double divisors_key_ = -1;
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
    const Division<T> by(p, 0, 0, 0);
    for (int64_t i = begin; i < end; i += L) {
      int64_t n = smaller(L, end - i);
      T quotients[L];
      divide<S, T>(grad + i, n, grad + end, by, nullptr, quotients);
      S values[L];
      store(values, load(quotients));
      for (int64_t k = 0; k < n; k++) fill(values[k], cells, sink);
    }
    sink.finish();
  }

 private:
  static void fill(S value, int64_t cells, Sink<S>& sink) {
    S values[L];
    for (int i = 0; i < L; i++) values[i] = value;
    auto piece = read<PackedOf<S>>(values);
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
