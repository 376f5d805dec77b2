// Forwards: each window's sum or maximum, its cells ascending in (d, h, w).
//
//     average   ((0 + x[1st cell]) + x[2nd]) + …, then divided
//     mean      of a whole plane: 16 such sums, cell i in the (i mod 16)th, added in pairs 8, 4, 2, 1 apart
//     largest   the first of the greatest cells; of NaNs, which exceed all else, the last
//
// Both are chains that may not be reordered, so a vector holds the same window of many planes. In
// channels-last order that is how cells lie. Planes are laid so first: `lanes` planes at a time, a
// piece of a few hundred cells at a time, transposed in registers and kept in the cache while windows
// need it. Results are transposed back on their way out. No geometry is special: neither strides nor
// overlaps nor dilation change the work per cell of a window.

#pragma once

#include "average.h"
#include "forward.h"

namespace pooltide {
namespace {

template <class T> struct Places;  // integers as wide as T: where maxima lie
template <> struct Places<float> { using Int = int32_t; };
template <> struct Places<double> { using Int = int64_t; };
template <class T> using IntOf = typename Places<T>::Int;
template <class T> struct IntLanes { typedef IntOf<T> I __attribute__((vector_size(kBytes))); };

// Row r, column c becomes row c, column r: each step rotates the bits of (r, c) by one.
template <class T, class V> inline __attribute__((always_inline)) void transpose(V* rows) {
  constexpr int n = Lanes<T>::n;
  using All = UpTo<n>;
#pragma GCC unroll 4
  for (int step = 1; step < n; step *= 2) {
    V next[n];
#pragma GCC unroll 8
    for (int i = 0; i < n / 2; i++) {
      next[2 * i] = zip<n, 0>(rows[i], rows[i + n / 2], All());
      next[2 * i + 1] = zip<n, 1>(rows[i], rows[i + n / 2], All());
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++) rows[i] = next[i];
  }
}

// A maximum so far and where it lies, in each lane.
template <class T, bool indexed> struct Best {
  using V = typename Lanes<T>::V;
  using I = typename IntLanes<T>::I;
  V value;
  I place;

  void meet(V x, I at) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) {
      __mmask16 wins = _mm512_cmp_ps_mask((__m512)x, (__m512)value, _CMP_GT_OQ) |
                       _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
      value = (V)_mm512_mask_mov_ps((__m512)value, wins, (__m512)x);
      if (indexed) place = (I)_mm512_mask_mov_epi32((__m512i)place, wins, (__m512i)at);
    } else {
      __mmask8 wins = _mm512_cmp_pd_mask((__m512d)x, (__m512d)value, _CMP_GT_OQ) |
                      _mm512_cmp_pd_mask((__m512d)x, (__m512d)x, _CMP_UNORD_Q);
      value = (V)_mm512_mask_mov_pd((__m512d)value, wins, (__m512d)x);
      if (indexed) place = (I)_mm512_mask_mov_epi64((__m512i)place, wins, (__m512i)at);
    }
#else
    I wins = (I)(x > value) | (I)(x != x);
    value = (V)(((I)x & wins) | ((I)value & ~wins));
    if (indexed) place = (at & wins) | (place & ~wins);
#endif
  }
};

// `count` cells, `step` elements apart, of any storage type: added to a sum or met by a maximum.
template <class S> inline void add_cells(VecOf<S>& sum, const S* p, int64_t count, int64_t step) {
  switch (count) {
    case 3: sum += load(p), p += step; [[fallthrough]];
    case 2: sum += load(p), p += step; [[fallthrough]];
    case 1: sum += load(p); return;
    default:
      for (int64_t j = 0; j < count; j++) sum += load(p + j * step);
  }
}
template <class S, class B>
inline void meet_cells(B& best, const S* p, int64_t count, int64_t step, int64_t at, int64_t stride) {
  using T = typename Sum<S>::T;
  using I = typename IntLanes<T>::I;
  I place = (IntOf<T>)at - I{};
  for (int64_t j = 0; j < count; j++, place += (IntOf<T>)stride) best.meet(load(p + j * step), place);
}

// Windows (d, h, w) of a pooling: where they begin, what divides their sums.
template <class T> struct Origin {
  const Pooling& p;
  int64_t od, oh;

  int64_t row(int64_t i, int64_t j) const {
    return (p.d.first[od] + i * p.d.step) * p.h.cells + p.h.first[oh] + j * p.h.step;
  }
  int64_t row_place(int64_t i, int64_t j) const { return p.row_place(row(i, j), i, j); }
  int64_t place(int64_t ow) const { return row_place(0, 0) + p.first_place(ow); }
  // Of n neighbouring windows.
  template <class V> V quotients(V sums, int64_t ow, int64_t n) const {
    bool alike = true;
    for (int64_t k = 1; k < n; k++) alike = alike && p.w.divisor[ow + k] == p.w.divisor[ow];
    if (alike) return quotient(sums, ow);
    T sum[Lanes<T>::n];
    store(sum, sums);
    for (int64_t k = 0; k < n; k++) sum[k] = quotient(sum[k], ow + k);
    return load(sum);
  }
  template <class V> V quotient(V sum, int64_t ow) const {
    double d = p.d.divisor[od], h = p.h.divisor[oh], w = p.w.divisor[ow];
    if (p.quotient == Quotient::constant) return sum / T(p.divisor) + T(0);  // never -0, as in PyTorch
    if (p.quotient == Quotient::product) return sum / T(d * h * w) + T(0);
    if (p.quotient == Quotient::mean) return sum / T(d * h * w);
    if (d != 1) sum = sum / T(d);
    if (h != 1) sum = sum / T(h);
    return w == 1 ? sum : sum / T(w);
  }
};

// Writes the places of n windows, from the one at `at` on.
template <class Int> inline void tell(const Pooling& p, const PoolingArrays& arrays, int64_t at, const Int* places, int64_t n) {
  if (p.offsets) {
    for (int64_t i = 0; i < n; i++) ((uint8_t*)arrays.indices)[at + i] = (uint8_t)places[i];
  } else {
    for (int64_t i = 0; i < n; i++) ((int64_t*)arrays.indices)[at + i] = places[i];
  }
}

constexpr int64_t kSegment = 512;  // windows of a row that are worked on at a time

// What a range of units is: rows of windows cut into segments.
struct Cursor {
  int64_t image, od, oh, from, n;
  Cursor(const Pooling& p, int64_t unit) {
    int64_t per_row = segments(p);
    from = unit % per_row * kSegment, n = smaller(kSegment, p.w.windows - from);
    int64_t row = unit / per_row;
    oh = row % p.h.windows, od = row / p.h.windows % p.d.windows, image = row / p.h.windows / p.d.windows;
  }
  static int64_t segments(const Pooling& p) { return (p.w.windows + kSegment - 1) / kSegment; }
  static int64_t units(const Pooling& p, int64_t images) {
    return images * p.d.windows * p.h.windows * segments(p);
  }
};

template <class T> constexpr T kLeast = -__builtin_inf();

// `lanes` planes, or what is left of them: their cells as vectors, one for each cell.
template <class S> class Tile {
  using V = VecOf<S>;
  static constexpr int64_t L = lanes<S>, kShort = 1024 / (int64_t)sizeof(S);
  static constexpr int64_t kColumns = 4;  // as many are not worth a transposition

 public:
  Tile(const Pooling& p, const PoolingArrays& arrays, int64_t plane)
      : x_((const S*)arrays.input + plane * p.cells()), cells_(p.cells()), planes_(smaller(L, p.planes() - plane)),
        readable_((p.planes() - plane - planes_ + 1) * cells_),
        ahead_(cells_ <= kShort ? L * cells_ : kShort / 4) {}

  int64_t planes() const { return planes_; }

  // `use(vector, cell)` for n cells from `from` on, in order.
  template <class F> inline __attribute__((always_inline)) void each(int64_t from, int64_t n, F use) const {
    int64_t i = from, end = from + n;
    for (; planes_ == L && i + L <= end; i += L) {
      V rows[L];
#pragma GCC unroll 16
      for (int64_t k = 0; k < L; k++) {
        rows[k] = load(x_ + k * cells_ + i);
        __builtin_prefetch(x_ + k * cells_ + i + ahead_);
      }
      transpose<typename Sum<S>::T>(rows);
#pragma GCC unroll 16
      for (int64_t k = 0; k < L; k++) use(rows[k], i + k);
    }
    for (; end - i > kColumns; i = smaller(i + L, end)) {
      V rows[L];
      some(i, rows);
      for (int64_t k = 0; k < smaller(L, end - i); k++) use(rows[k], i + k);
    }
    for (; i < end; i++) use(column(i), i);
  }

 private:
  // `lanes` cells from i on, where planes or cells are fewer.
  __attribute__((noinline)) void some(int64_t i, V* rows) const {
    for (int64_t k = 0; k < L; k++) rows[k] = V{};
    for (int64_t k = 0; k < planes_; k++) {
      const S* from = x_ + k * cells_ + i;
      rows[k] = i + L <= readable_ ? load(from) : load_part(from, readable_ - i);
    }
    transpose<typename Sum<S>::T>(rows);
  }

  V column(int64_t i) const {
    S cells[L] = {};
    for (int64_t k = 0; k < planes_; k++) cells[k] = x_[k * cells_ + i];
    return load(cells);
  }

  const S* x_;
  int64_t cells_, planes_, readable_;  // readable from the last plane on
  int64_t ahead_;  // what is asked for before it is needed: of short planes, the next tile
};

// One thread's work on planes. An image is a tile of `lanes` planes.
template <class S, bool largest, bool indexed> class PlanesForward {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>, kPiece = 256, kSlotBytes = (kPiece + L) * L * (int64_t)sizeof(T);
  static constexpr int64_t kRows = 16, kHeld = 1024;

 public:
  PlanesForward(const Pooling& p, const PoolingArrays& arrays, void* block) : p_(p), arrays_(arrays), carve_(block) {
    wide_ = p.w.cells > kPiece;
    rows_per_piece_ = wide_ ? 1 : larger(1, kPiece / larger(p.w.cells, 1));
    pieces_per_row_ = wide_ ? (p.w.cells + kPiece - 1) / kPiece : 1;
    int64_t rows = p.d.cells * p.h.cells;
    int64_t pieces = wide_ ? rows * pieces_per_row_ : (rows + rows_per_piece_ - 1) / rows_per_piece_;
    slots_n_ = larger(1, smaller(pieces, (512 << 10) / kSlotBytes));
    slots_ = carve_.template take<T>(slots_n_ * kSlotBytes / (int64_t)sizeof(T));
    tags_ = carve_.template take<int64_t>(slots_n_);
    used_ = carve_.template take<int64_t>(slots_n_);
    held_ = carve_.template take<T>((kHeld + L) * L);
    places_ = carve_.template take<Int>(indexed ? (kHeld + L) * L : 0);
  }

  static int64_t units(const Pooling& p) { return Cursor::units(p, (p.planes() + L - 1) / L); }
  static int64_t scratch(const Pooling& p) { return PlanesForward(p, PoolingArrays(), nullptr).carve_.used(); }

  void run(int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; unit++) {
      Cursor at(p_, unit);
      if (at.image * L != plane_) open(at.image);
      if (filled_ + at.n > kHeld) flush();
      if (filled_ == 0) to_ = (at.od * p_.h.windows + at.oh) * p_.w.windows + at.from;
      segment(at);
      filled_ += at.n;
    }
    flush();
  }

 private:
  void open(int64_t tile) {
    flush();
    plane_ = tile * L;
    planes_ = smaller(L, p_.planes() - plane_);
    for (int64_t i = 0; i < slots_n_; i++) tags_[i] = -1, used_[i] = -1;
  }

  void segment(const Cursor& at) {
    const Origin<T> origin{p_, at.od, at.oh};
    T* sums = held_ + filled_ * L;
    Int* places = places_ + filled_ * L;
    for (int64_t o = 0; o < at.n; o++) {
      store(sums + o * L, largest ? splat(kLeast<T>) : V{});
      if (indexed) write(places + o * L, (Int)origin.place(at.from + o) - I{});
    }
    batch_++;
    rows_n_ = 0;
    for (int64_t i = 0; i < p_.d.count[at.od]; i++)
      for (int64_t j = 0; j < p_.h.count[at.oh]; j++) {
        int64_t row = origin.row(i, j), place = p_.row_place(row, i, j);
        wide_ ? reduce_pieces(at, row, place, sums, places) : take_row(at, row, place, sums, places);
      }
    reduce_rows(at, sums, places);
    if (!largest)
      for (int64_t o = 0; o < at.n; o++) store(sums + o * L, origin.quotient(load(sums + o * L), at.from + o));
  }

  // Rows wait until the next one would take a slot from them; then they are reduced together.
  void take_row(const Cursor& at, int64_t row, int64_t place, T* sums, Int* places) {
    if (rows_n_ > 0 && rows_n_ < kRows && row >= piece_row_ && row < piece_row_ + rows_per_piece_) {
      rows_[rows_n_] = piece_cells_ + (row - piece_row_) * p_.w.cells * L;  // the piece of the row before
      row_places_[rows_n_++] = place;
      return;
    }
    int64_t piece = row / rows_per_piece_, slot = piece % slots_n_;
    if (rows_n_ == kRows || (used_[slot] == batch_ && tags_[slot] != piece)) {
      reduce_rows(at, sums, places);
      batch_++;
    }
    int64_t from = piece * rows_per_piece_ * p_.w.cells;
    const T* cells = packed(slot, piece, from, smaller(rows_per_piece_ * p_.w.cells, p_.cells() - from));
    used_[slot] = batch_;
    piece_row_ = piece * rows_per_piece_, piece_cells_ = cells;
    rows_[rows_n_] = cells + (row - piece_row_) * p_.w.cells * L;
    row_places_[rows_n_++] = place;
  }

  void reduce_rows(const Cursor& at, T* sums, Int* places) {
    for (int64_t o = 0; o < at.n; o++) {
      int64_t first = p_.w.first[at.from + o], count = p_.w.count[at.from + o], place = p_.first_place(at.from + o);
      Best<T, indexed> best{load(sums + o * L), indexed ? read<I>(places + o * L) : I{}};
      for (int64_t r = 0; r < rows_n_; r++) reduce(best, rows_[r] + first * L, count, row_places_[r] + place);
      store(sums + o * L, best.value);
      if (indexed) write(places + o * L, best.place);
    }
    rows_n_ = 0;
  }

  void reduce(Best<T, indexed>& best, const T* p, int64_t count, int64_t place) const {
    if (largest) {
      meet_cells<T>(best, p, count, p_.w.step * L, place, p_.place_step());
    } else {
      add_cells<T>(best.value, p, count, p_.w.step * L);
    }
  }

  // A row too long for one piece: piece by piece, each window's part of it.
  void reduce_pieces(const Cursor& at, int64_t row, int64_t place, T* sums, Int* places) {
    const WindowAxis& w = p_.w;
    int64_t last = at.from + at.n - 1, o0 = at.from, least = w.cells, end = 0;
    for (int64_t o = at.from; o <= last; o++) least = smaller(least, w.first[o]), end = larger(end, reach(w, o));
    for (int64_t c = least / kPiece; c * kPiece < end; c++) {
      int64_t begin = c * kPiece, stop = smaller(begin + kPiece, w.cells), piece = row * pieces_per_row_ + c;
      const T* cells = packed(piece % slots_n_, piece, row * w.cells + begin, stop - begin);
      while (o0 <= last && reach(w, o0) <= begin) o0++;
      // From `step` on, first cells ascend with o; before, dilation may have stepped over the padding.
      for (int64_t o = o0; o <= last && w.first[o] < larger(stop, w.step); o++) {
        int64_t skip = larger(0, (begin - w.first[o] + w.step - 1) / w.step);
        int64_t until = smaller(w.count[o], (stop - w.first[o] + w.step - 1) / w.step);
        if (skip >= until) continue;
        int64_t first = w.first[o] + skip * w.step, k = (o - at.from) * L;
        Best<T, indexed> best{load(sums + k), indexed ? read<I>(places + k) : I{}};
        reduce(best, cells + (first - begin) * L, until - skip, place + p_.first_place(o) + skip * p_.place_step());
        store(sums + k, best.value);
        if (indexed) write(places + k, best.place);
      }
    }
  }
  static int64_t reach(const WindowAxis& w, int64_t o) { return w.first[o] + (w.count[o] - 1) * w.step + 1; }

  // Cells from … from+n-1 of the tile's planes, cell by cell.
  const T* packed(int64_t slot, int64_t piece, int64_t from, int64_t n) {
    T* to = (T*)((char*)slots_ + slot * kSlotBytes);
    if (tags_[slot] == piece) return to;
    tags_[slot] = piece;
    Tile<S>(p_, arrays_, plane_).each(from, n, [&](V v, int64_t i) { store(to + (i - from) * L, v); });
    return to;
  }

  void flush() {
    int64_t windows = p_.windows();
    S* out = (S*)arrays_.out + plane_ * windows + to_;
    for (int64_t i = 0; i < filled_; i += L) {
      int64_t n = smaller(L, filled_ - i);
      V rows[L];
      for (int64_t k = 0; k < L; k++) rows[k] = load(held_ + (i + k) * L);
      transpose<T>(rows);
      for (int64_t k = 0; k < planes_; k++) n == L ? store(out + k * windows + i, rows[k]) : store_part(out + k * windows + i, rows[k], n);
      if (!indexed) continue;
      for (int64_t k = 0; k < L; k++) rows[k] = read<V>(places_ + (i + k) * L);
      transpose<T>(rows);
      for (int64_t k = 0; k < planes_; k++) {
        Int narrow[L];
        write(narrow, (I)rows[k]);
        int64_t to = (plane_ + k) * windows + to_ + i;
        n == L ? tell(p_, arrays_, to, narrow, L) : tell(p_, arrays_, to, narrow, n);
      }
    }
    filled_ = 0;
  }

  const Pooling& p_;
  const PoolingArrays& arrays_;
  Carve carve_;
  bool wide_;  // a row is cut into pieces; else a piece is some rows
  int64_t rows_per_piece_, pieces_per_row_, slots_n_;
  T *slots_, *held_;
  Int* places_;
  int64_t *tags_, *used_;
  const T* rows_[kRows];
  const T* piece_cells_ = nullptr;
  int64_t piece_row_ = 0;
  int64_t row_places_[kRows];
  int64_t rows_n_ = 0, batch_ = 0, plane_ = -1, planes_ = 0, filled_ = 0, to_ = 0;
};

// Planes of one window that holds all of their cells. A unit is a tile.
template <class S, bool largest, bool indexed> class WholePlanes {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>;

 public:
  WholePlanes(const Pooling& p, const PoolingArrays& arrays, void*) : p_(p), arrays_(arrays) {}
  static int64_t units(const Pooling& p) { return (p.planes() + L - 1) / L; }
  static int64_t scratch(const Pooling&) { return 0; }
  static bool pays(const Pooling& p) {
    return p.windows() == 1 && p.d.count[0] * p.h.count[0] * p.w.count[0] == p.cells();
  }

  void run(int64_t begin, int64_t end) const {
    const Origin<T> origin{p_, 0, 0};
    for (int64_t unit = begin; unit < end; unit++) {
      const Tile<S> tile(p_, arrays_, unit * L);
      Best<T, indexed> best{largest ? splat(kLeast<T>) : V{}, I{}};
      tile.each(0, p_.cells(), [&](V v, int64_t i) { largest ? best.meet(v, (Int)i - I{}) : (void)(best.value += v); });
      V value = largest ? best.value : origin.quotient(best.value, 0);
      S* out = (S*)arrays_.out + unit * L;
      tile.planes() == L ? store(out, value) : store_part(out, value, tile.planes());
      if (!indexed) continue;
      Int narrow[L];
      write(narrow, best.place);
      tell(p_, arrays_, unit * L, narrow, tile.planes());
    }
  }

 private:
  const Pooling& p_;
  const PoolingArrays& arrays_;
};

template <class S> S least();
template <> inline float least<float>() { return kLeast<float>; }
template <> inline double least<double>() { return kLeast<double>; }
template <> inline Half least<Half>() { return {0xFC00}; }
template <> inline Bfloat least<Bfloat>() { return {0xFF80}; }

// Every second element of 2 × lanes.
template <class S, int... i> inline VecOf<S> load_evens(const S* p, Order<i...>) {
  return __builtin_shufflevector(load(p), load(p + lanes<S>), (2 * i)...);
}

// One thread's work on planes as they lie: a vector holds neighbouring windows of a row. It pays where
// planes are too few to fill a vector, and windows 1 or 2 cells apart, so that their cells are loaded at
// once. An image is a plane.
template <class S, bool largest, bool indexed> class RowsForward {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  using All = UpTo<lanes<S>>;
  static constexpr int64_t L = lanes<S>;

 public:
  RowsForward(const Pooling& p, const PoolingArrays& arrays, void*)
      : p_(p), arrays_(arrays), end_((const S*)arrays.input + p.planes() * p.cells()) {}
  static int64_t units(const Pooling& p) { return Cursor::units(p, p.planes()); }
  static int64_t scratch(const Pooling&) { return 0; }
  static bool pays(const Pooling& p) {
    bool even = (p.w.stride == 1 || p.w.stride == 2) && p.w.even_to - p.w.even_from >= L;
    return even && p.planes() < L / 2;
  }

  void run(int64_t begin, int64_t end) const {
    for (int64_t unit = begin; unit < end; unit++) {
      Cursor at(p_, unit);
      const S* x = (const S*)arrays_.input + at.image * p_.cells();
      const Origin<T> origin{p_, at.od, at.oh};
      int64_t row = ((at.image * p_.d.windows + at.od) * p_.h.windows + at.oh) * p_.w.windows;
      segment(origin, x, at.from, at.from + at.n, row);
    }
  }

 private:
  void segment(const Origin<T>& origin, const S* x, int64_t from, int64_t to, int64_t row) const {
    int64_t even_from = smaller(larger(from, p_.w.even_from), to), even_to = smaller(to, p_.w.even_to);
    bool even = even_to - even_from >= L && (p_.w.stride == 1 || p_.w.stride == 2);
    if (!even) even_from = even_to = to;
    for (int64_t o = from; o < even_from; o += L) block(origin, x, o, smaller(L, even_from - o), row);
    for (int64_t o = even_from; o < even_to; o += L) {
      int64_t at = smaller(o, even_to - L);  // the last vector ends with the windows
      p_.w.stride == 1 ? even_block<1>(origin, x, at, row) : even_block<2>(origin, x, at, row);
    }
    for (int64_t o = even_to; o < to; o += L) block(origin, x, o, smaller(L, to - o), row);
  }

  template <int stride> void even_block(const Origin<T>& origin, const S* x, int64_t o, int64_t row) const {
    int64_t first = p_.w.first[o], count = p_.w.count[o], step = p_.w.step;
    int64_t last_row = origin.row(p_.d.count[origin.od] - 1, p_.h.count[origin.oh] - 1);
    if (x + last_row * p_.w.cells + first + (count - 1) * step + stride * L > end_) return block(origin, x, o, L, row);
    Best<T, indexed> best = begin(origin, o);
    for_rows(origin, [&](const S* cells, I place) {
      for (int64_t j = 0; j < count; j++, cells += step, place += (Int)p_.place_step()) {
        V v;
        if constexpr (stride == 1) v = load(cells); else v = load_evens(cells, All());
        meet(best, v, place);
      }
    }, x, o);
    finish(origin, best, o, L, row);
  }

  // Windows of any kind: their cells are brought together one by one.
  void block(const Origin<T>& origin, const S* x, int64_t o, int64_t n, int64_t row) const {
    const WindowAxis& w = p_.w;
    int64_t most = 0;
    for (int64_t k = 0; k < n; k++) most = larger(most, w.count[o + k]);
    Best<T, indexed> best = begin(origin, o, n);
    for_rows(origin, [&](const S* cells, I place) {
      for (int64_t j = 0; j < most; j++, place += (Int)p_.place_step()) {
        S values[L];
        for (int64_t k = 0; k < L; k++) values[k] = largest ? least<S>() : S{};
        for (int64_t k = 0; k < n; k++)
          if (j < w.count[o + k]) values[k] = cells[w.first[o + k] - w.first[o] + j * w.step];
        meet(best, load(values), place);
      }
    }, x, o, n);
    finish(origin, best, o, n, row);
  }

  I places(int64_t row_place, int64_t o, int64_t n) const {
    Int found[L] = {};
    for (int64_t k = 0; k < n; k++) found[k] = (Int)(row_place + p_.first_place(o + k));
    return read<I>(found);
  }

  Best<T, indexed> begin(const Origin<T>& origin, int64_t o, int64_t n = L) const {
    return {largest ? splat(kLeast<T>) : V{}, indexed ? places(origin.row_place(0, 0), o, n) : I{}};
  }

  template <class F> void for_rows(const Origin<T>& origin, F use, const S* x, int64_t o, int64_t n = L) const {
    for (int64_t i = 0; i < p_.d.count[origin.od]; i++)
      for (int64_t j = 0; j < p_.h.count[origin.oh]; j++) {
        int64_t row = origin.row(i, j);
        use(x + row * p_.w.cells + p_.w.first[o], indexed ? places(p_.row_place(row, i, j), o, n) : I{});
      }
  }

  static void meet(Best<T, indexed>& best, V v, I place) {
    if (largest) best.meet(v, place);
    else best.value += v;
  }

  void finish(const Origin<T>& origin, const Best<T, indexed>& best, int64_t o, int64_t n, int64_t row) const {
    V value = largest ? best.value : origin.quotients(best.value, o, n);
    S* out = (S*)arrays_.out + row + o;
    n == L ? store(out, value) : store_part(out, value, n);
    if (!indexed) return;
    Int narrow[L];
    write(narrow, best.place);
    tell(p_, arrays_, row + o, narrow, n);
  }

  const Pooling& p_;
  const PoolingArrays& arrays_;
  const S* end_;
};

// One thread's work in channels-last order: a vector of channels of one cell is a vector as it lies.
template <class S, bool largest, bool indexed> class ChannelsForward {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>;

 public:
  ChannelsForward(const Pooling& p, const PoolingArrays& arrays, void*) : p_(p), arrays_(arrays) {}
  static int64_t units(const Pooling& p) { return Cursor::units(p, p.batch); }
  static int64_t scratch(const Pooling&) { return 0; }

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
      V value = largest ? best.value : origin.quotient(best.value, ow);
      S* out = (S*)arrays_.out + to;
      n == L ? store(out, value) : store_part(out, value, n);
      if (!indexed) continue;
      Int narrow[L];
      write(narrow, best.place);
      tell(p_, arrays_, to, narrow, n);
    }
  }

  Best<T, indexed> reduce(const Origin<T>& origin, int64_t ow, const S* x, int64_t n) const {
    int64_t first = p_.w.first[ow], count = p_.w.count[ow], step = p_.w.step, channels = p_.channels;
    Best<T, indexed> best{largest ? splat(kLeast<T>) : V{}, (Int)origin.place(ow) - I{}};
    for (int64_t i = 0; i < p_.d.count[origin.od]; i++)
      for (int64_t j = 0; j < p_.h.count[origin.oh]; j++) {
        int64_t from = origin.row(i, j) * p_.w.cells + first, stride = p_.place_step();
        int64_t place = origin.row_place(i, j) + p_.first_place(ow);
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

  const Pooling& p_;
  const PoolingArrays& arrays_;
};

// Pairs n/2, …, 2, 1 apart are added.
template <int n, class V> inline V added(V* sums) {
  for (int step = n / 2; step > 0; step /= 2)
    for (int k = 0; k < step; k++) sums[k] += sums[k + step];
  return sums[0];
}

// Row r becomes lane r: the sum of its elements, added likewise.
template <int n, class V> inline V folded(V* rows) {
  using All = UpTo<n>;
#pragma GCC unroll 4
  for (int half = n / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int r = 0; r < half; r++)
      rows[r] = zip<n, 0>(rows[r], rows[r + half], All()) + zip<n, 1>(rows[r], rows[r + half], All());
  return rows[0];
}

// The mean of each plane, an image.
template <class S> class PlanesMean {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>, kSums = 16;

 public:
  PlanesMean(const Pooling& p, const PoolingArrays& arrays, void*) : p_(p), arrays_(arrays) {}
  static int64_t units(const Pooling& p) { return p.planes(); }
  static int64_t scratch(const Pooling&) { return 0; }

  void run(int64_t begin, int64_t end) const {
    const Origin<T> origin{p_, 0, 0};
    const S* x = (const S*)arrays_.input;
    for (int64_t from = begin; from < end; from += L) {
      int64_t n = smaller(L, end - from);
      V rows[L] = {};
      for (int64_t k = 0; k < n; k++) rows[k] = sums(x + (from + k) * p_.cells());
      V means = origin.quotient(folded<L>(rows), 0);
      S* out = (S*)arrays_.out + from;
      n == L ? store(out, means) : store_part(out, means, n);
    }
  }

 private:
  // The sums of a plane, added in pairs until a vector holds them.
  V sums(const S* x) const {
    V parts[kSums / L] = {};
    int64_t cells = p_.cells(), i = 0;
    for (; i + kSums <= cells; i += kSums)
#pragma GCC unroll 8
      for (int64_t m = 0; m < kSums / L; m++) parts[m] += load(x + i + m * L);
#pragma GCC unroll 8
    for (int64_t m = 0; m < kSums / L; m++, i += L)
      if (i < cells) parts[m] += first_of(x + i, smaller(L, cells - i));
    return added<kSums / L>(parts);
  }

  // The first n elements, then zeros; what follows them is read where it exists.
  V first_of(const S* x, int64_t n) const {
    if (x + L > (const S*)arrays_.input + p_.planes() * p_.cells()) return load_part(x, n);
    static constexpr IntOf<T> kept[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    return (V)((I)load(x) & read<I>(kept + 16 - n));
  }

  const Pooling& p_;
  const PoolingArrays& arrays_;
};

// The same in channels-last order; a unit is an image.
template <class S> class ChannelsMean {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  static constexpr int64_t L = lanes<S>, kSums = 16;

 public:
  ChannelsMean(const Pooling& p, const PoolingArrays& arrays, void*) : p_(p), arrays_(arrays) {}
  static int64_t units(const Pooling& p) { return p.batch; }
  static int64_t scratch(const Pooling&) { return 0; }

  void run(int64_t begin, int64_t end) const {
    const Origin<T> origin{p_, 0, 0};
    int64_t channels = p_.channels, n = smaller(L, channels);
    for (int64_t image = begin; image < end; image++)
      for (int64_t c = 0; c < channels; c += L) {
        int64_t from = channels < L ? 0 : smaller(c, channels - L);
        V mean = origin.quotient(sum((const S*)arrays_.input + image * p_.cells() * channels + from, n), 0);
        S* out = (S*)arrays_.out + image * channels + from;
        n == L ? store(out, mean) : store_part(out, mean, n);
      }
  }

 private:
  V sum(const S* x, int64_t n) const {
    V sums[kSums] = {};
    for (int64_t i = 0; i < p_.cells(); i++, x += p_.channels) sums[i % kSums] += n == L ? load(x) : load_part(x, n);
    return added<kSums>(sums);
  }

  const Pooling& p_;
  const PoolingArrays& arrays_;
};

// Calls `use` with a kernel made for a pooling's storage type, layout and question.
template <class S, class F> inline auto with_forward_of(const Pooling& p, F use) {
  if (p.quotient == Quotient::mean && p.channels_last) return use((ChannelsMean<S>*)nullptr);
  if (p.quotient == Quotient::mean) return use((PlanesMean<S>*)nullptr);
  if (p.channels_last) {
    if (!p.largest) return use((ChannelsForward<S, false, false>*)nullptr);
    if (!p.indexed) return use((ChannelsForward<S, true, false>*)nullptr);
    return use((ChannelsForward<S, true, true>*)nullptr);
  }
  if (RowsForward<S, false, false>::pays(p)) {
    if (!p.largest) return use((RowsForward<S, false, false>*)nullptr);
    if (!p.indexed) return use((RowsForward<S, true, false>*)nullptr);
    return use((RowsForward<S, true, true>*)nullptr);
  }
  if (WholePlanes<S, false, false>::pays(p)) {
    if (!p.largest) return use((WholePlanes<S, false, false>*)nullptr);
    if (!p.indexed) return use((WholePlanes<S, true, false>*)nullptr);
    return use((WholePlanes<S, true, true>*)nullptr);
  }
  if (!p.largest) return use((PlanesForward<S, false, false>*)nullptr);
  if (!p.indexed) return use((PlanesForward<S, true, false>*)nullptr);
  return use((PlanesForward<S, true, true>*)nullptr);
}
template <class F> inline auto with_forward(const Pooling& p, F use) {
  switch (p.store) {
    case Store::f32: return with_forward_of<float>(p, use);
    case Store::f64: return with_forward_of<double>(p, use);
    case Store::f16: return with_forward_of<Half>(p, use);
    default: return with_forward_of<Bfloat>(p, use);
  }
}

int64_t forward_units(const Pooling& p) {
  return with_forward(p, [&](auto* kernel) { return kernel->units(p); });
}
int64_t forward_scratch(const Pooling& p) {
  return with_forward(p, [&](auto* kernel) { return kernel->scratch(p); });
}
template <class K>
void run_forward_as(K*, const Pooling& p, const PoolingArrays& arrays, int64_t begin, int64_t end, void* block) {
  K(p, arrays, block).run(begin, end);
}
void run_forward(const Pooling& p, const PoolingArrays& arrays, int64_t begin, int64_t end, void* block) {
  IeeeMode ieee;
  with_forward(p, [&](auto* kernel) { run_forward_as(kernel, p, arrays, begin, end, block); });
}

}  // namespace
}  // namespace pooltide
