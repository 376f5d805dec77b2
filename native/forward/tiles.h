// Forwards of many planes: a vector holds the same cell of `lanes` planes.
//
// In memory the cells of one plane are neighbours, so a tile of `lanes` planes is transposed in registers. In
// channels-last order the planes of a tile are neighbouring channels, and nothing is transposed.
// If a window is a whole plane, the transposed cells are used immediately. Otherwise they are stored in blocks
// of a few hundred cells, which stay in the cache while windows need them. Results are transposed back.
// The maximum of a window is the maximum of the maxima of its rows. If many windows share a row (`shares_rows`), each
// row of cells is reduced once for all of them, and then the results of rows are reduced.

#pragma once

#include "windows.h"

namespace pooltide {
namespace {

// Transposes n × n elements: each step rotates the bits of (row, column) by one.
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

// Up to `lanes` consecutive planes, read as one vector per cell.
template <class S> class Tile {
  using V = VecOf<S>;
  static constexpr int64_t L = lanes<S>, kItem = sizeof(S);
  static constexpr int64_t kShort = 2048 / kItem, kNear = 256 / kItem, kFar = 12288 / kItem;
  static constexpr int64_t kFewCells = 4;  // up to this number, loading cells one by one is faster than a transposition

 public:
  Tile(const Problem& p, const Arrays& arrays, int64_t plane)
      : x_((const S*)arrays.input + plane * p.cells()), cells_(p.cells()), planes_(smaller(L, p.planes() - plane)),
        readable_((p.planes() - plane - planes_ + 1) * cells_),
        ahead_(cells_ <= kShort ? larger(L * cells_, kFar) : kNear), ahead_per_cell_(cells_ <= kShort ? L : 1),
        ahead_per_plane_(cells_ <= kShort ? L : cells_) {}

  int64_t planes() const { return planes_; }

  // Calls `use(vector, cell)` for n cells from `from` on, in order.
  template <class F> inline __attribute__((always_inline)) void for_each(int64_t from, int64_t n, F use) const {
    int64_t i = from, end = from + n;
    for (; planes_ == L && i + L <= end; i += L) {
      V rows[L];
#pragma GCC unroll 16
      for (int64_t k = 0; k < L; k++) {
        rows[k] = load(x_ + k * cells_ + i);
        __builtin_prefetch(x_ + ahead_ + i * ahead_per_cell_ + k * ahead_per_plane_);
      }
      transpose<typename Sum<S>::T>(rows);
#pragma GCC unroll 16
      for (int64_t k = 0; k < L; k++) use(rows[k], i + k);
    }
    for (; end - i > kFewCells; i = smaller(i + L, end)) {
      V rows[L];
      load_part_tile(i, rows);
      for (int64_t k = 0; k < smaller(L, end - i); k++) use(rows[k], i + k);
    }
    for (; i < end; i++) use(column(i), i);
  }

 private:
  // Loads `lanes` cells from i on; some planes or cells may not exist.
  __attribute__((noinline)) void load_part_tile(int64_t i, V* rows) const {
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
  int64_t cells_, planes_, readable_;  // readable_: elements of the input from the last plane on
  // What to prefetch: later cells of the same planes. Short planes defeat the hardware prefetcher, so for them
  // prefetch the following planes.
  int64_t ahead_, ahead_per_cell_, ahead_per_plane_;
};

// Computes planes of one window that holds all cells. A unit is a tile.
template <class S, bool maximum, bool indexed> class WholePlanesForward {
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
    const WindowRow<T> windows{p_, 0, 0};
    for (int64_t unit = begin; unit < end; unit++) {
      const Tile<S> tile(p_, arrays_, unit * L);
      Reduction<T, indexed> result{maximum ? splat(kLowest<T>) : V{}, I{}};
      tile.for_each(0, p_.cells(), [&](V v, int64_t i) { reduce_cell<maximum>(result, v, (Int)i - I{}); });
      if (!maximum) result.value = windows.quotient(result.value, 0);
      store_results<S>(p_, arrays_, unit * L, result, tile.planes());
    }
  }

 private:
  const Problem& p_;
  const Arrays& arrays_;
};

// How a tile of one storage type is read and written. The class below is compiled once for all storage types that have
// the same type of sums, T.
template <class T> struct TileStorage {
  using V = typename Lanes<T>::V;
  // Writes n transposed cells of the planes from `plane` on to `to`, the first of them cell `from`.
  void (*read)(const Problem& p, const Arrays& arrays, int64_t plane, int64_t from, int64_t n, T* to);
  // Writes n results of each of some planes, which are `step` elements apart. `at` is the position of the first result.
  void (*write)(const Arrays& arrays, int64_t at, int64_t step, const V* rows, int64_t planes, int64_t n);
};
template <class S> struct TileAccess {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  static void read(const Problem& p, const Arrays& arrays, int64_t plane, int64_t from, int64_t n, T* to) {
    if (p.channels_last) return read_channels(p, arrays, plane, from, n, to);
    Tile<S>(p, arrays, plane).for_each(from, n, [&](V v, int64_t i) { store(to + (i - from) * lanes<S>, v); });
  }
  static void write(const Arrays& arrays, int64_t at, int64_t step, const V* rows, int64_t planes, int64_t n) {
    for (int64_t k = 0; k < planes; k++) store_results<S>(arrays, at + k * step, rows[k], n);
  }

 private:
  static void read_channels(const Problem& p, const Arrays& arrays, int64_t plane, int64_t from, int64_t n, T* to) {
    const int64_t channel = plane % p.channels, left = p.channels - channel;
    const S* x = (const S*)arrays.input + ((plane / p.channels * p.cells()) + from) * p.channels + channel;
    for (int64_t i = 0; i < n; i++, x += p.channels, to += lanes<S>)
      store(to, left >= lanes<S> ? load(x) : load_part(x, left));
  }
};

// Computes windows of any kind. An image, for `Cursor`, is a tile of `lanes` planes.
template <class T, bool maximum, bool indexed> class Tiles {
  using Int = IntOf<T>;
  using V = typename Lanes<T>::V;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = Lanes<T>::n, kBlock = kBlockCells, kTightBlock = 8, kSlotBytes = (kBlock + L) * L * (int64_t)sizeof(T);
  static constexpr int64_t kRows = 16, kResults = 1024, kBlocksOfShared = 4;

 public:
  Tiles(const Problem& p, const Arrays& arrays, void* scratch, TileStorage<T> storage)
      : p_(p), arrays_(arrays), storage_(storage), carve_(scratch) {
    block_cells_ = arrays.tight ? kTightBlock : kBlock;
    long_rows_ = p.w.cells > block_cells_;
    shared_ = maximum && !long_rows_ && shares_rows(p);
    rows_per_block_ = long_rows_ ? 1 : larger(1, block_cells_ / larger(p.w.cells, 1));
    blocks_per_row_ = long_rows_ ? (p.w.cells + block_cells_ - 1) / block_cells_ : 1;
    int64_t rows = p.d.cells * p.h.cells;
    int64_t blocks = long_rows_ ? rows * blocks_per_row_ : (rows + rows_per_block_ - 1) / rows_per_block_;
    slot_count_ = larger(1, smaller(blocks, arrays.tight ? 2 : shared_ ? kBlocksOfShared : kCachedBytes / kSlotBytes));
    slots_ = carve_.template take<T>(slot_count_ * kSlotBytes / (int64_t)sizeof(T));
    row_size_ = shared_ ? p.w.windows * L * (indexed ? 2 : 1) : 0;
    row_slots_ = !shared_ ? 0 : arrays.tight ? 2 : larger(1, smaller(rows, kCachedBytes / (row_size_ * (int64_t)sizeof(T))));
    row_results_ = carve_.template take<T>(row_slots_ * row_size_);
    tags_ = carve_.template take<int64_t>(slot_count_ + row_slots_);
    used_in_ = carve_.template take<int64_t>(slot_count_ + row_slots_);
    results_ = carve_.template take<T>((kResults + L) * L);
    indices_ = carve_.template take<Int>(indexed ? (kResults + L) * L : 0);
  }

  static int64_t units(const Problem& p) { return Cursor::units(p, p.channels_last ? p.batch * tiles(p.channels) : tiles(p.planes())); }
  int64_t scratch() const { return carve_.used(); }
  static const char* refuse(const Problem&, bool) { return nullptr; }

  void run(int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; unit++) {
      Cursor at(p_, unit);
      if (at.image != tile_) open_tile(at.image);
      if (result_count_ + at.n > kResults) flush();
      if (result_count_ == 0) to_ = (at.od * p_.h.windows + at.oh) * p_.w.windows + at.from;
      reduce_segment(at);
      result_count_ += at.n;
    }
    flush();
  }

 private:
  static int64_t tiles(int64_t planes) { return (planes + L - 1) / L; }

  void open_tile(int64_t tile) {
    flush();
    tile_ = tile;
    const int64_t planes = p_.channels_last ? p_.channels : p_.planes(), in_image = tile % tiles(planes) * L;
    plane_ = tile / tiles(planes) * planes + in_image;
    planes_ = smaller(L, planes - in_image);
    for (int64_t i = 0; i < slot_count_ + row_slots_; i++) tags_[i] = -1, used_in_[i] = -1;
  }

  void reduce_segment(const Cursor& at) {
    const WindowRow<T> windows{p_, at.od, at.oh};
    T* results = results_ + result_count_ * L;
    Int* indices = indices_ + result_count_ * L;
    const int64_t base = windows.index_of_row(0, 0);
    for (int64_t o = 0; o < at.n; o++) {
      store(results + o * L, maximum ? splat(kLowest<T>) : V{});
      if (indexed) write(indices + o * L, (Int)(base + first_index(p_, at.from + o)) - I{});
    }
    generation_++;
    row_count_ = 0;
    for (int64_t i = 0; i < p_.d.length[at.od]; i++)
      for (int64_t j = 0; j < p_.h.length[at.oh]; j++) {
        int64_t row = windows.row(i, j), index = row_index(p_, row, i, j);
        if (shared_) queue_shared_row(at, row, index, results, indices);
        else long_rows_ ? reduce_long_row(at, row, index, results, indices) : queue_row(at, row, index, results, indices);
      }
    reduce_rows(at, results, indices);
    if (!maximum)
      for (int64_t o = 0, n; o < at.n; o += n) {
        n = alike(at.from + o, at.n - o);
        windows.with_quotient(at.from + o, [&](auto divide) {
          for (int64_t k = o; k < o + n; k++) store(results + k * L, divide(load(results + k * L)));
        });
      }
  }

  // Returns how many of the `most` windows from o on have the length and divisor of window o and begin one stride apart.
  int64_t alike(int64_t o, int64_t most) const {
    if (o < p_.w.regular_from) return 1;
    int64_t n = 1, end = smaller(most, p_.w.regular_to - o);
    while (n < end && (maximum || p_.w.divisor[o + n] == p_.w.divisor[o])) n++;
    return n;
  }

  // Queues a row of cells. Queued rows are reduced together before one of their slots is overwritten.
  void queue_row(const Cursor& at, int64_t row, int64_t index, T* results, Int* indices) {
    if (row_count_ > 0 && row_count_ < kRows && row >= block_row_ && row < block_row_ + rows_per_block_) {
      rows_[row_count_] = block_data_ + (row - block_row_) * p_.w.cells * L;  // the previous row is in the same block
      row_indices_[row_count_++] = index;
      return;
    }
    int64_t block = row / rows_per_block_, slot = block % slot_count_;
    make_room(at, slot, block, results, indices);
    const T* cells = transposed_rows(slot, block);
    block_row_ = block * rows_per_block_, block_data_ = cells;
    rows_[row_count_] = cells + (row - block_row_) * p_.w.cells * L;
    row_indices_[row_count_++] = index;
  }

  // Reduces the queued rows if the queue is full, or if one of them is in the slot and is not `tag`.
  void make_room(const Cursor& at, int64_t slot, int64_t tag, T* results, Int* indices) {
    if (row_count_ == kRows || (used_in_[slot] == generation_ && tags_[slot] != tag)) {
      reduce_rows(at, results, indices);
      generation_++;
    }
    used_in_[slot] = generation_;
  }

  // Queues a row of maxima: one for each window of the row, then their indices without that of the row.
  void queue_shared_row(const Cursor& at, int64_t row, int64_t index, T* results, Int* indices) {
    int64_t k = row % row_slots_, slot = slot_count_ + k;
    make_room(at, slot, row, results, indices);
    T* maxima = row_results_ + k * row_size_;
    if (tags_[slot] != row) tags_[slot] = row, reduce_shared_row(row, maxima);
    rows_[row_count_] = maxima;
    row_indices_[row_count_++] = index;
  }

  __attribute__((noinline)) void reduce_shared_row(int64_t row, T* maxima) {
    int64_t block = row / rows_per_block_, n = p_.w.windows;
    const T* cells = transposed_rows(block % slot_count_, block) + row % rows_per_block_ * p_.w.cells * L;
    for (int64_t o = 0; o < n; o++, maxima += L) {
      int64_t index = first_index(p_, o);
      Reduction<T, indexed> result{splat(kLowest<T>), (Int)index - I{}};
      reduce(result, cells + p_.w.start[o] * L, p_.w.length[o], index);
      store(maxima, result.value);
      if (indexed) write((Int*)maxima + n * L, result.index);
    }
  }

  void reduce_rows(const Cursor& at, T* results, Int* indices) {
    if (shared_) {
      reduce_maxima(at, results, indices);
    } else {
      for (int64_t o = 0, n; o < at.n; o += n) {
        n = alike(at.from + o, at.n - o);
        switch (p_.w.length[at.from + o]) {
          case 1: reduce_alike<1>(at.from + o, n, results + o * L, indices + o * L); break;
          case 2: reduce_alike<2>(at.from + o, n, results + o * L, indices + o * L); break;
          case 3: reduce_alike<3>(at.from + o, n, results + o * L, indices + o * L); break;
          default: reduce_alike<0>(at.from + o, n, results + o * L, indices + o * L);
        }
      }
    }
    row_count_ = 0;
  }

  // Reduces the queued rows for n alike windows from o on, each of `count` cells in a row, or of any number if it is 0.
  template <int count> void reduce_alike(int64_t o, int64_t n, T* results, Int* indices) const {
    const int64_t cells = count ? count : p_.w.length[o], next = n > 1 ? p_.w.stride : 0, rows = row_count_;
    const int64_t step = p_.w.dilation * L, index_apart = index_step(p_), index_next = p_.index_bytes == 1 ? 0 : next;
    int64_t first = p_.w.start[o] * L, index = first_index(p_, o);
    for (; n > 0; n--, first += next * L, index += index_next, results += L, indices += L) {
      Reduction<T, indexed> result{load(results), indexed ? read<I>(indices) : I{}};
      for (int64_t r = 0; r < rows; r++)
        reduce_cells<T, maximum>(result, rows_[r] + first, cells, step, row_indices_[r] + index, index_apart);
      store(results, result.value);
      if (indexed) write(indices, result.index);
    }
  }

  // Reduces the queued rows of maxima.
  void reduce_maxima(const Cursor& at, T* results, Int* indices) const {
    const int64_t places = p_.w.windows * L;
    for (int64_t o = 0, from = at.from * L; o < at.n; o++, from += L, results += L, indices += L) {
      Reduction<T, indexed> result{load(results), indexed ? read<I>(indices) : I{}};
      for (int64_t r = 0; r < row_count_; r++)
        result.update(load(rows_[r] + from), indexed ? read<I>((const Int*)rows_[r] + places + from) + (Int)row_indices_[r] : I{});
      store(results, result.value);
      if (indexed) write(indices, result.index);
    }
  }

  void reduce(Reduction<T, indexed>& result, const T* p, int64_t count, int64_t index) const {
    reduce_cells<T, maximum>(result, p, count, p_.w.dilation * L, index, index_step(p_));
  }

  // Reduces a row that is longer than a block: for each block, the part of each window inside the block.
  void reduce_long_row(const Cursor& at, int64_t row, int64_t index, T* results, Int* indices) {
    const Axis& w = p_.w;
    int64_t last = at.from + at.n - 1, o0 = at.from, least = w.cells, end = 0;
    for (int64_t o = at.from; o <= last; o++) least = smaller(least, w.start[o]), end = larger(end, end_of(w, o));
    for (int64_t c = least / block_cells_; c * block_cells_ < end; c++) {
      int64_t begin = c * block_cells_, stop = smaller(begin + block_cells_, w.cells), block = row * blocks_per_row_ + c;
      const T* cells = transposed(block % slot_count_, block, row * w.cells + begin, stop - begin);
      while (o0 <= last && end_of(w, o0) <= begin) o0++;
      // A window that begins in the padding has its first cell inside the axis before cell `dilation`. The starts of
      // such windows may descend. All later starts ascend, so the loop ends at the first later start after the block.
      for (int64_t o = o0; o <= last && w.start[o] < larger(stop, w.dilation); o++) {
        int64_t skip = larger(0, (begin - w.start[o] + w.dilation - 1) / w.dilation);
        int64_t until = smaller(w.length[o], (stop - w.start[o] + w.dilation - 1) / w.dilation);
        if (skip >= until) continue;
        int64_t first = w.start[o] + skip * w.dilation, k = (o - at.from) * L;
        Reduction<T, indexed> result{load(results + k), indexed ? read<I>(indices + k) : I{}};
        reduce(result, cells + (first - begin) * L, until - skip, index + first_index(p_, o) + skip * index_step(p_));
        store(results + k, result.value);
        if (indexed) write(indices + k, result.index);
      }
    }
  }
  static int64_t end_of(const Axis& w, int64_t o) { return w.start[o] + (w.length[o] - 1) * w.dilation + 1; }

  // Returns the transposed rows of cells of a block.
  const T* transposed_rows(int64_t slot, int64_t block) {
    int64_t from = block * rows_per_block_ * p_.w.cells;
    return transposed(slot, block, from, smaller(rows_per_block_ * p_.w.cells, p_.cells() - from));
  }

  // Returns n transposed cells of the tile's planes from `from` on: block `block`, in its slot.
  const T* transposed(int64_t slot, int64_t block, int64_t from, int64_t n) {
    T* to = (T*)((char*)slots_ + slot * kSlotBytes);
    if (tags_[slot] == block) return to;
    tags_[slot] = block;
    storage_.read(p_, arrays_, plane_, from, n, to);
    return to;
  }

  void flush() {
    if (p_.channels_last) return flush_channels();
    int64_t windows = p_.windows();
    for (int64_t i = 0; i < result_count_; i += L) {
      int64_t n = smaller(L, result_count_ - i);
      V rows[L];
#pragma GCC unroll 16
      for (int64_t k = 0; k < L; k++) rows[k] = load(results_ + (i + k) * L);
      transpose<T>(rows);
      storage_.write(arrays_, plane_ * windows + to_ + i, windows, rows, planes_, n);
      if (!indexed) continue;
#pragma GCC unroll 16
      for (int64_t k = 0; k < L; k++) rows[k] = read<V>(indices_ + (i + k) * L);
      transpose<T>(rows);
      for (int64_t k = 0; k < planes_; k++) store_indices(p_, arrays_, (plane_ + k) * windows + to_ + i, (I)rows[k], n);
    }
    result_count_ = 0;
  }

  void flush_channels() {
    int64_t at = result_count_ ? (plane_ / p_.channels * p_.windows() + to_) * p_.channels + plane_ % p_.channels : 0;
    for (int64_t i = 0; i < result_count_; i++, at += p_.channels) {
      V row = load(results_ + i * L);
      storage_.write(arrays_, at, p_.channels, &row, 1, planes_);
      if (indexed) store_indices(p_, arrays_, at, read<I>(indices_ + i * L), planes_);
    }
    result_count_ = 0;
  }

  const Problem& p_;
  const Arrays& arrays_;
  const TileStorage<T> storage_;
  Carve carve_;
  int64_t block_cells_;  // the most cells of a block
  bool long_rows_;       // a row is several blocks; otherwise a block is one or more rows
  bool shared_;          // each row of cells is reduced once
  int64_t rows_per_block_, blocks_per_row_, slot_count_;
  int64_t row_slots_, row_size_;  // of shared_: how many rows of maxima are kept; the elements of one
  T *slots_, *row_results_, *results_;
  Int* indices_;
  // Per slot, of blocks and then of rows of maxima: its block or row, and the generation of queued rows that uses it.
  int64_t *tags_, *used_in_;
  const T* rows_[kRows];  // the queued rows, and the indices of their first cells
  int64_t row_indices_[kRows];
  const T* block_data_ = nullptr;  // the block queued last, and its first row
  int64_t block_row_ = 0;
  int64_t row_count_ = 0, generation_ = 0, tile_ = -1, plane_ = -1, planes_ = 0, result_count_ = 0, to_ = 0;
};

template <class S, bool maximum, bool indexed> struct TilesForward : Tiles<typename Sum<S>::T, maximum, indexed> {
  TilesForward(const Problem& p, const Arrays& arrays, void* scratch)
      : Tiles<typename Sum<S>::T, maximum, indexed>(p, arrays, scratch, {TileAccess<S>::read, TileAccess<S>::write}) {}
};

}  // namespace
}  // namespace pooltide
