// Forwards of many planes: a vector holds the same cell of `lanes` planes.
//
// In memory the cells of one plane are neighbours, so a tile of `lanes` planes is transposed in registers.
// A window that is a whole plane uses the transposed cells at once. Otherwise they are stored in pieces of a
// few hundred cells, which stay in the cache while windows need them. Results are transposed back.

#pragma once

#include "windows.h"

namespace pooltide {
namespace {

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

// `lanes` planes, or those that remain: a vector for each cell.
template <class S> class Tile {
  using V = VecOf<S>;
  static constexpr int64_t L = lanes<S>, kItem = sizeof(S);
  static constexpr int64_t kShort = 2048 / kItem, kNear = 256 / kItem, kFar = 12288 / kItem;
  static constexpr int64_t kColumns = 4;  // as many are not worth a transposition

 public:
  Tile(const Problem& p, const Arrays& arrays, int64_t plane)
      : x_((const S*)arrays.input + plane * p.cells()), cells_(p.cells()), planes_(smaller(L, p.planes() - plane)),
        readable_((p.planes() - plane - planes_ + 1) * cells_),
        ahead_(cells_ <= kShort ? larger(L * cells_, kFar) : kNear), per_cell_(cells_ <= kShort ? L : 1),
        per_plane_(cells_ <= kShort ? L : cells_) {}

  int64_t planes() const { return planes_; }

  // `use(vector, cell)` for n cells from `from` on, in order.
  template <class F> inline __attribute__((always_inline)) void each(int64_t from, int64_t n, F use) const {
    int64_t i = from, end = from + n;
    for (; planes_ == L && i + L <= end; i += L) {
      V rows[L];
#pragma GCC unroll 16
      for (int64_t k = 0; k < L; k++) {
        rows[k] = load(x_ + k * cells_ + i);
        __builtin_prefetch(x_ + ahead_ + i * per_cell_ + k * per_plane_);
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
  // What to prefetch: later cells of each plane. Short planes defeat the hardware prefetcher, so for them
  // prefetch the following planes.
  int64_t ahead_, per_cell_, per_plane_;
};

// Planes of one window that holds all of their cells. A unit is a tile.
template <class S, bool largest, bool indexed> class WholePlanesForward {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>;

 public:
  WholePlanesForward(const Problem& p, const Arrays& arrays, void*) : p_(p), arrays_(arrays) {}
  static int64_t units(const Problem& p) { return (p.planes() + L - 1) / L; }
  int64_t scratch() const { return 0; }
  static const char* refuse(const Problem& p, bool) {
    if (p.channels_last) return "the arrays are channels-last";
    bool whole = p.windows() == 1 && p.d.length[0] * p.h.length[0] * p.w.length[0] == p.cells();
    return whole ? nullptr : "a plane has more than one window, or cells outside its window";
  }

  void run(int64_t begin, int64_t end) const {
    const Origin<T> origin{p_, 0, 0};
    for (int64_t unit = begin; unit < end; unit++) {
      const Tile<S> tile(p_, arrays_, unit * L);
      Best<T, indexed> best{largest ? splat(kLeast<T>) : V{}, I{}};
      tile.each(0, p_.cells(), [&](V v, int64_t i) { take<largest>(best, v, (Int)i - I{}); });
      if (!largest) best.value = origin.quotient(best.value, 0);
      put<S>(p_, arrays_, unit * L, best, tile.planes());
    }
  }

 private:
  const Problem& p_;
  const Arrays& arrays_;
};

// One thread's work on windows of any kind. An image is a tile of `lanes` planes.
template <class S, bool largest, bool indexed> class TilesForward {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>, kPiece = 256, kTightPiece = 8, kSlotBytes = (kPiece + L) * L * (int64_t)sizeof(T);
  static constexpr int64_t kRows = 16, kHeld = 1024;

 public:
  TilesForward(const Problem& p, const Arrays& arrays, void* block) : p_(p), arrays_(arrays), carve_(block) {
    piece_ = arrays.tight ? kTightPiece : kPiece;
    wide_ = p.w.cells > piece_;
    rows_per_piece_ = wide_ ? 1 : larger(1, piece_ / larger(p.w.cells, 1));
    pieces_per_row_ = wide_ ? (p.w.cells + piece_ - 1) / piece_ : 1;
    int64_t rows = p.d.cells * p.h.cells;
    int64_t pieces = wide_ ? rows * pieces_per_row_ : (rows + rows_per_piece_ - 1) / rows_per_piece_;
    slots_n_ = larger(1, smaller(pieces, arrays.tight ? 2 : (512 << 10) / kSlotBytes));
    slots_ = carve_.template take<T>(slots_n_ * kSlotBytes / (int64_t)sizeof(T));
    tags_ = carve_.template take<int64_t>(slots_n_);
    used_ = carve_.template take<int64_t>(slots_n_);
    held_ = carve_.template take<T>((kHeld + L) * L);
    places_ = carve_.template take<Int>(indexed ? (kHeld + L) * L : 0);
  }

  static int64_t units(const Problem& p) { return Cursor::units(p, (p.planes() + L - 1) / L); }
  int64_t scratch() const { return carve_.used(); }
  static const char* refuse(const Problem& p, bool) { return p.channels_last ? "the arrays are channels-last" : nullptr; }

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
    for (int64_t i = 0; i < p_.d.length[at.od]; i++)
      for (int64_t j = 0; j < p_.h.length[at.oh]; j++) {
        int64_t row = origin.row(i, j), place = row_place(p_, row, i, j);
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
      int64_t first = p_.w.start[at.from + o], count = p_.w.length[at.from + o], place = first_place(p_, at.from + o);
      Best<T, indexed> best{load(sums + o * L), indexed ? read<I>(places + o * L) : I{}};
      for (int64_t r = 0; r < rows_n_; r++) reduce(best, rows_[r] + first * L, count, row_places_[r] + place);
      store(sums + o * L, best.value);
      if (indexed) write(places + o * L, best.place);
    }
    rows_n_ = 0;
  }

  void reduce(Best<T, indexed>& best, const T* p, int64_t count, int64_t place) const {
    if (largest) {
      meet_cells<T>(best, p, count, p_.w.dilation * L, place, place_step(p_));
    } else {
      add_cells<T>(best.value, p, count, p_.w.dilation * L);
    }
  }

  // A row too long for one piece: piece by piece, each window's part of it.
  void reduce_pieces(const Cursor& at, int64_t row, int64_t place, T* sums, Int* places) {
    const Axis& w = p_.w;
    int64_t last = at.from + at.n - 1, o0 = at.from, least = w.cells, end = 0;
    for (int64_t o = at.from; o <= last; o++) least = smaller(least, w.start[o]), end = larger(end, reach(w, o));
    for (int64_t c = least / piece_; c * piece_ < end; c++) {
      int64_t begin = c * piece_, stop = smaller(begin + piece_, w.cells), piece = row * pieces_per_row_ + c;
      const T* cells = packed(piece % slots_n_, piece, row * w.cells + begin, stop - begin);
      while (o0 <= last && reach(w, o0) <= begin) o0++;
      // From `step` on, first cells ascend with o; before, dilation may have stepped over the padding.
      for (int64_t o = o0; o <= last && w.start[o] < larger(stop, w.dilation); o++) {
        int64_t skip = larger(0, (begin - w.start[o] + w.dilation - 1) / w.dilation);
        int64_t until = smaller(w.length[o], (stop - w.start[o] + w.dilation - 1) / w.dilation);
        if (skip >= until) continue;
        int64_t first = w.start[o] + skip * w.dilation, k = (o - at.from) * L;
        Best<T, indexed> best{load(sums + k), indexed ? read<I>(places + k) : I{}};
        reduce(best, cells + (first - begin) * L, until - skip, place + first_place(p_, o) + skip * place_step(p_));
        store(sums + k, best.value);
        if (indexed) write(places + k, best.place);
      }
    }
  }
  static int64_t reach(const Axis& w, int64_t o) { return w.start[o] + (w.length[o] - 1) * w.dilation + 1; }

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

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  int64_t piece_;  // the most cells of a piece
  bool wide_;      // a row is cut into pieces; otherwise a piece is some rows
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

}  // namespace
}  // namespace pooltide
