// Gradients of maxima, channels-last, by gathering: each cell looks for its own index in the windows that
// hold it.
//
//     image[cell, c] = sum over the windows q that hold the cell, ascending: grad[q, c] if indices[q, c] is the cell
//
// A vector is a few channels of one cell: one comparison and one addition for each window. Each cell of the
// result is written once, in order, and rows of cells are independent. Rows of windows are read into slots:
// gradients converted to the type of the sums, indices in 32 bits; one-byte offsets stay bytes. An index
// outside its own window is reported as astray: the problem must then be scattered. A unit is a row of cells.

#pragma once

#include "scatter_channels.h"

namespace pooltide {
namespace {

template <class I> struct Narrowed { using Type = int32_t; };
template <> struct Narrowed<uint8_t> { using Type = uint8_t; };

template <class S, class I> class GatherChannels {
  using T = typename Sum<S>::T;
  using N = typename Narrowed<I>::Type;
  static constexpr int64_t L = lanes<S>, kStep = 2 * L;
  static constexpr bool kSame = sizeof(S) == sizeof(T), kDirect = sizeof(I) == sizeof(N);
  typedef typename Unsigned<N>::Type U;
  typedef U Many __attribute__((vector_size(L * sizeof(U))));
  static constexpr bool kOffset = sizeof(I) == 1;

  // A row of windows: its number, and the index of the row's first cell, or its offset.
  struct Row {
    int64_t tag, name;
    const T* grad;
    const N* at;
  };

 public:
  static int64_t units(const Problem& p) { return p.batch * p.d.cells * p.h.cells; }
  int64_t scratch() const { return carve_.used(); }

  GatherChannels(const Problem& p, const Arrays& arrays, void* block) : p_(p), arrays_(arrays), carve_(block) {
    row_ = p.w.windows * p.channels, room_ = round_up(row_ + kStep, 64);
    deep_ = p.d.most, high_ = p.h.most;
    int64_t all = deep_ * p.h.windows;
    if (deep_ > 1 && all * room_ <= 1 << 16 && !arrays.tight) high_ = p.h.windows;
    slots_ = carve_.take<Row>(deep_ * high_);
    rows_ = carve_.take<Row>(deep_ * p.h.most);
    grads_ = carve_.take<T>(deep_ * high_ * room_);
    ats_ = carve_.take<N>(deep_ * high_ * room_);
    stage_ = carve_.take<S>(stage());
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    int64_t n = p_.channels, row = p_.w.cells * n;
    S* out = (S*)arrays_.out;
    Sink<S> sink(out + begin * row, out + end * row, stage_, stage(), arrays_.stream);
    for (int64_t i = 0; i < deep_ * high_; i++) slots_[i].tag = -1;
    for (int64_t unit = begin; unit < end; unit++) {
      open(unit);
      for (int64_t w = 0; w < p_.w.cells; w++) {
        S* to = sink.room(n);
        sum(to, w);
        sink.commit(to, n);
      }
    }
    sink.finish();
    fault.astray |= astray_;
  }

 private:
  // Small, so that its lines are written while the next cells are summed.
  int64_t stage() const { return Sink<S>::staging(p_.channels, 4096); }

  // The rows of windows that hold a row of cells, ascending.
  void open(int64_t unit) {
    int64_t h = unit % p_.h.cells, d = unit / p_.h.cells % p_.d.cells, image = unit / p_.h.cells / p_.d.cells;
    found_ = 0;
    for (int64_t od = p_.d.first[d]; od < p_.d.first[d] + p_.d.count[d]; od++)
      for (int64_t oh = p_.h.first[h]; oh < p_.h.first[h] + p_.h.count[h]; oh++) {
        rows_[found_] = windows(image, od, oh);
        rows_[found_++].name = kOffset ? ((d - p_.d.start[od]) * p_.h.longest + h - p_.h.start[oh]) * p_.w.longest
                                      : (d * p_.h.cells + h) * p_.w.cells;
      }
  }

  void sum(S* to, int64_t w) const {
    int64_t each = p_.w.count[w];
    if (found_ == 1 && each == 1) return sum_of<1, 1>(to, w);
    if (found_ == 1 && each == 2) return sum_of<1, 2>(to, w);
    if (found_ == 2 && each == 1) return sum_of<2, 1>(to, w);
    if (found_ == 2 && each == 2) return sum_of<2, 2>(to, w);
    sum_of<0, 0>(to, w);
  }

  // The sums of a cell that lies in so many rows of windows, in so many of each; 0: any number.
  template <int kRows, int kEach> void sum_of(S* to, int64_t w) const {
    int64_t n = p_.channels, rows = kRows ? kRows : found_, each = kEach ? kEach : p_.w.count[w];
    int64_t first = p_.w.first[w];
    Row kept[kRows + 1];
    N back[kEach + 1];
    for (int64_t r = 0; r < kRows; r++) kept[r] = rows_[r];
    for (int64_t k = 0; k < kEach; k++) back[k] = name_less(w, first + k);
    for (int64_t c = 0; c < n; c += kStep) {
      VecOf<S> low{}, high{};
#pragma GCC unroll 2
      for (int64_t r = 0; r < rows; r++) {
        const Row& row = kRows ? kept[r] : rows_[r];
#pragma GCC unroll 2
        for (int64_t k = 0; k < each; k++) {
          int64_t at = (first + k) * n + c;
          N name = (N)(row.name + (kEach ? back[k] : name_less(w, first + k)));
          low = add_where(low, row.at + at, name, row.grad + at);
          high = add_where(high, row.at + at + L, name, row.grad + at + L);
        }
      }
      write(to + c, two(S{}, low, high));
    }
  }

  // The index or offset of a cell, less that of its row.
  N name_less(int64_t w, int64_t ow) const { return (N)(kOffset ? w - p_.w.start[ow] : w); }

  // A row of windows in its slot.
  const Row& windows(int64_t image, int64_t od, int64_t oh) {
    int64_t place = od % deep_ * high_ + oh % high_, row = (image * p_.d.windows + od) * p_.h.windows + oh;
    Row& slot = slots_[place];
    if (slot.tag == row) return slot;
    slot.tag = row;
    slot.grad = gradients((const S*)arrays_.grad + row * row_, grads_ + place * room_);
    slot.at = narrow((const I*)arrays_.indices + row * row_, ats_ + place * room_);
    int64_t corner = kOffset ? 0 : row_start(p_, row % (p_.d.windows * p_.h.windows));
    Many bad{};
    for (int64_t ow = 0; ow < p_.w.windows; ow++)
      bad |= look_at(slot.at + ow * p_.channels, corner + (kOffset ? 0 : p_.w.start[ow]), od, oh, p_.w.length[ow]);
    for (int k = 0; k < L; k++) astray_ |= bad[k] != 0;
    return slot;
  }

  // Whole vectors are read. Where the channels do not fill them, a read could pass the end of the array.
  const T* gradients(const S* from, T* to) const {
    if (!kSame) return widened(from, row_, to, 0);
    if (p_.channels % kStep == 0) return (const T*)(const void*)from;
    memcpy((void*)to, from, row_ * sizeof(T));
    return to;
  }

  const N* narrow(const I* from, N* to) {
    if (kDirect && p_.channels % kStep == 0) return (const N*)(const void*)from;
    uint64_t all = 0;
    for (int64_t i = 0; i < row_; i++) to[i] = (N)from[i], all |= (uint64_t)(int64_t)from[i];
    astray_ |= all >> 31 != 0;
    return to;
  }

  // Non-zero in the lanes whose index names no cell of the window, which has rows of `length` cells: the
  // distance from the nearest row start at or before the index must be below `length`.
  Many look_at(const N* at, int64_t corner, int64_t od, int64_t oh, int64_t length) const {
    int64_t h = kOffset ? p_.h.longest : p_.h.cells, w = kOffset ? p_.w.longest : p_.w.cells;
    Many worst{};
    int64_t c = 0;
    for (; c < p_.channels; c += L) {
      Many v = c + L <= p_.channels ? read<Many>(at + c) : part(at + c, p_.channels - c, corner);
      Many nearest = v - (U)corner;
      for (int64_t i = 0; i < p_.d.length[od]; i++)
        for (int64_t j = 0; j < p_.h.length[oh]; j++) {
          Many from = v - (U)(corner + (i * h + j) * w);
          nearest = from < nearest ? from : nearest;
        }
      worst = nearest > worst ? nearest : worst;
    }
    return (Many)(worst >= (U)length);
  }

  static Many part(const N* at, int64_t n, int64_t rest) {
    N padded[L];
    for (int64_t i = 0; i < L; i++) padded[i] = i < n ? at[i] : (N)rest;
    return read<Many>(padded);
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  int64_t row_, room_, deep_, high_, found_ = 0;
  bool astray_ = false;
  Row *slots_, *rows_;
  T* grads_;
  N* ats_;
  S* stage_;
};

}  // namespace
}  // namespace pooltide
