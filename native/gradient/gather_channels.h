// Gradients of maxima, channels-last, by gathering: each cell compares its index with those of the windows that
// hold it.
//
//     image[cell, c] = sum over the windows q that hold the cell, ascending: grad[q, c] if indices[q, c] is the cell
//
// A vector holds channels of one cell: one comparison and one addition per window. Each cell of the result is
// written once, in order, and rows of cells are independent. Rows of windows are read into a ring of slots:
// gradients in the type of the sums, indices in 32 bits or, for offsets, in 8. A cell is never compared with an
// index outside that index's window, so such an index sets Fault::retry: the problem must be scattered instead.
// A unit is a row of cells.

#pragma once

#include "../simd/scratch.h"
#include "../simd/sink.h"
#include "indices.h"

namespace pooltide {
namespace {

template <class I> struct Narrowed { using Type = int32_t; };
template <> struct Narrowed<uint8_t> { using Type = uint8_t; };

template <class S, class I> class GatherChannels {
  using T = typename Sum<S>::T;
  using N = typename Narrowed<I>::Type;
  static constexpr int64_t L = lanes<S>, kTwoVectors = 2 * L;
  static constexpr bool kSameType = sizeof(S) == sizeof(T), kSameIndex = sizeof(I) == sizeof(N);
  typedef typename Unsigned<N>::Type U;
  typedef U IndexVector __attribute__((vector_size(L * sizeof(U))));
  static constexpr bool kOffset = sizeof(I) == 1;

  // A row of windows: its number, the index or offset of the first cell of the current row of cells, and its
  // gradients and indices.
  struct Row {
    int64_t tag, index;
    const T* grad;
    const N* indices;
  };

 public:
  static int64_t units(const Problem& p) { return p.batch * p.d.cells * p.h.cells; }
  int64_t scratch() const { return carve_.used(); }

  GatherChannels(const Problem& p, const Arrays& arrays, void* scratch) : p_(p), arrays_(arrays), carve_(scratch) {
    row_size_ = p.w.windows * p.channels, slot_size_ = round_up(row_size_ + kTwoVectors, 64);
    slots_d_ = p.d.most, slots_h_ = p.h.most;
    int64_t all = slots_d_ * p.h.windows;
    if (slots_d_ > 1 && all * slot_size_ <= 1 << 16 && !arrays.tight) slots_h_ = p.h.windows;
    slots_ = carve_.take<Row>(slots_d_ * slots_h_);
    rows_ = carve_.take<Row>(slots_d_ * p.h.most);
    grads_ = carve_.take<T>(slots_d_ * slots_h_ * slot_size_);
    indices_ = carve_.take<N>(slots_d_ * slots_h_ * slot_size_);
    stage_ = carve_.take<S>(stage_size());
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    int64_t n = p_.channels, row = p_.w.cells * n;
    S* out = (S*)arrays_.out;
    Sink<S> sink(out + begin * row, out + end * row, stage_, stage_size(), arrays_.stream);
    for (int64_t i = 0; i < slots_d_ * slots_h_; i++) slots_[i].tag = -1;
    for (int64_t unit = begin; unit < end; unit++) {
      open_row(unit);
      for (int64_t w = 0; w < p_.w.cells; w++) {
        S* to = sink.reserve(n);
        sum(to, w);
        sink.commit(to, n);
      }
    }
    sink.finish();
    fault.retry |= outside_;
  }

 private:
  // A small stage leaves while the next cells are summed.
  int64_t stage_size() const { return Sink<S>::stage_size(p_.channels, 4096); }

  // Collects the rows of windows that hold a row of cells, ascending.
  void open_row(int64_t unit) {
    int64_t h = unit % p_.h.cells, d = unit / p_.h.cells % p_.d.cells, image = unit / p_.h.cells / p_.d.cells;
    row_count_ = 0;
    for (int64_t od = p_.d.first[d]; od < p_.d.first[d] + p_.d.count[d]; od++)
      for (int64_t oh = p_.h.first[h]; oh < p_.h.first[h] + p_.h.count[h]; oh++) {
        rows_[row_count_] = window_row(image, od, oh);
        rows_[row_count_++].index = kOffset ? ((d - p_.d.start[od]) * p_.h.longest + h - p_.h.start[oh]) * p_.w.longest
                                            : (d * p_.h.cells + h) * p_.w.cells;
      }
  }

  void sum(S* to, int64_t w) const {
    int64_t per_row = p_.w.count[w];
    if (row_count_ == 1 && per_row == 1) return sum_of<1, 1>(to, w);
    if (row_count_ == 1 && per_row == 2) return sum_of<1, 2>(to, w);
    if (row_count_ == 2 && per_row == 1) return sum_of<2, 1>(to, w);
    if (row_count_ == 2 && per_row == 2) return sum_of<2, 2>(to, w);
    sum_of<0, 0>(to, w);
  }

  // Writes a cell that is in kRows rows of windows, and in kPerRow windows of each; 0 stands for any number.
  template <int kRows, int kPerRow> void sum_of(S* to, int64_t w) const {
    int64_t n = p_.channels, rows = kRows ? kRows : row_count_, per_row = kPerRow ? kPerRow : p_.w.count[w];
    int64_t first = p_.w.first[w];
    Row fixed_rows[kRows + 1];
    N fixed_index[kPerRow + 1];
    for (int64_t r = 0; r < kRows; r++) fixed_rows[r] = rows_[r];
    for (int64_t k = 0; k < kPerRow; k++) fixed_index[k] = index_in_row(w, first + k);
    for (int64_t c = 0; c < n; c += kTwoVectors) {
      VecOf<S> low{}, high{};
#pragma GCC unroll 2
      for (int64_t r = 0; r < rows; r++) {
        const Row& row = kRows ? fixed_rows[r] : rows_[r];
#pragma GCC unroll 2
        for (int64_t k = 0; k < per_row; k++) {
          int64_t at = (first + k) * n + c;
          N index = (N)(row.index + (kPerRow ? fixed_index[k] : index_in_row(w, first + k)));
          low = add_where(low, row.indices + at, index, row.grad + at);
          high = add_where(high, row.indices + at + L, index, row.grad + at + L);
        }
      }
      write(to + c, pack_two(S{}, low, high));
    }
  }

  // Returns the index or offset of a cell, minus that of the first cell of its row.
  N index_in_row(int64_t w, int64_t ow) const { return (N)(kOffset ? w - p_.w.start[ow] : w); }

  // Returns the slot of a row of windows. Fills it and checks the indices, if it holds another row.
  const Row& window_row(int64_t image, int64_t od, int64_t oh) {
    int64_t at = od % slots_d_ * slots_h_ + oh % slots_h_, row = (image * p_.d.windows + od) * p_.h.windows + oh;
    Row& slot = slots_[at];
    if (slot.tag == row) return slot;
    slot.tag = row;
    slot.grad = summable((const S*)arrays_.grad + row * row_size_, grads_ + at * slot_size_);
    slot.indices = narrowed((const I*)arrays_.indices + row * row_size_, indices_ + at * slot_size_);
    int64_t corner = kOffset ? 0 : row_start(p_, row % (p_.d.windows * p_.h.windows));
    IndexVector bad{};
    for (int64_t ow = 0; ow < p_.w.windows; ow++)
      bad |= check_indices(slot.indices + ow * p_.channels, corner + (kOffset ? 0 : p_.w.start[ow]), od, oh, p_.w.length[ow]);
    for (int k = 0; k < L; k++) outside_ |= bad[k] != 0;
    return slot;
  }

  // Returns a row of gradients in the type of the sums. Copies them if the channels do not fill whole vectors:
  // `sum_of` reads whole vectors, and could read past the end of the array.
  const T* summable(const S* from, T* to) const {
    if (!kSameType) return widened(from, row_size_, to, 0);
    if (p_.channels % kTwoVectors == 0) return (const T*)(const void*)from;
    memcpy((void*)to, from, row_size_ * sizeof(T));
    return to;
  }

  const N* narrowed(const I* from, N* to) {
    if (kSameIndex && p_.channels % kTwoVectors == 0) return (const N*)(const void*)from;
    uint64_t all = 0;
    for (int64_t i = 0; i < row_size_; i++) to[i] = (N)from[i], all |= (uint64_t)(int64_t)from[i];
    outside_ |= all >> 31 != 0;
    return to;
  }

  // Returns non-zero lanes where an index names no cell of its window. The window's rows have `length` cells:
  // the distance from the nearest row start at or before the index must be below `length`.
  IndexVector check_indices(const N* at, int64_t corner, int64_t od, int64_t oh, int64_t length) const {
    int64_t h = kOffset ? p_.h.longest : p_.h.cells, w = kOffset ? p_.w.longest : p_.w.cells;
    IndexVector worst{};
    int64_t c = 0;
    for (; c < p_.channels; c += L) {
      IndexVector v = c + L <= p_.channels ? read<IndexVector>(at + c) : load_indices_part(at + c, p_.channels - c, corner);
      IndexVector nearest = v - (U)corner;
      for (int64_t i = 0; i < p_.d.length[od]; i++)
        for (int64_t j = 0; j < p_.h.length[oh]; j++) {
          IndexVector from = v - (U)(corner + (i * h + j) * w);
          nearest = from < nearest ? from : nearest;
        }
      worst = nearest > worst ? nearest : worst;
    }
    return (IndexVector)(worst >= (U)length);
  }

  static IndexVector load_indices_part(const N* at, int64_t n, int64_t padding) {
    N padded[L];
    for (int64_t i = 0; i < L; i++) padded[i] = i < n ? at[i] : (N)padding;
    return read<IndexVector>(padded);
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  int64_t row_size_, slot_size_, slots_d_, slots_h_, row_count_ = 0;
  bool outside_ = false;
  Row *slots_, *rows_;
  T* grads_;
  N* indices_;
  S* stage_;
};

}  // namespace
}  // namespace pooltide
