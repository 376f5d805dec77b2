// Gradients of maxima by scattering: adds the gradient of each window to the cell that the window's index names.
//
//     image[indices[q, c], c] += grad[q, c]      windows q in ascending order
//
// Input: grad_output and indices. Output: grad_input, and Fault::retry. scatter_layout.h explains image, segment,
// piece, band and block. A unit is one segment of an image, for one block of channels.
// An index outside the band of its piece sets Fault::retry: then PreparedProblem::run uses a later kernel.
// A band may reach into a neighbouring segment. The kernel skips an index that names a cell of another segment, because
// the unit of that segment adds the same gradient.

#pragma once

#include "../simd/sink.h"
#include "indices.h"
#include "places.h"
#include "scatter_layout.h"

namespace pooltide {
namespace {

// A range of cells.
struct Cells {
  int64_t from, to;
};

// S is float, double, or Half for both half types. I is the type of the indices; one-byte offsets are decoded to int64.
template <class S, class I, Method method> class Scatter {
  using T = typename Sum<S>::T;
  static constexpr int64_t L = lanes<S>, kTwoVectors = 2 * L, kFlush = 512;
  static constexpr int64_t kAhead = 4096, kLine = 64 / sizeof(I), kCellsAhead = 8;  // bytes, elements, cells
  static constexpr int64_t kZeros = (128 << 10) / sizeof(S);  // elements that are set to zero at once
  static constexpr int64_t kFew = 1024;  // bytes of the result to a window
  static constexpr bool kHalf = sizeof(S) < sizeof(T), kRing = method == Method::bands;

 public:
  static int64_t units(const Problem& p) { return ScatterLayout::units(p, method); }
  int64_t scratch() const { return carve_.used(); }

  Scatter(const Problem& p, const Arrays& arrays, void* scratch)
      : p_(p), arrays_(arrays), layout_(p, method, arrays.tight), carve_(scratch) {
    int64_t n = layout_.piece * layout_.block;
    ring_ = carve_.take<T>(kRing ? layout_.ring + kTwoVectors : 0);
    places_ = carve_.take<uint32_t>(has_places() ? n : 0);
    grads_ = carve_.take<T>(kHalf || layout_.blocks > 1 ? n + L : 0);
    at_ = carve_.take<uint32_t>(kRing ? n : 0);
    indices_ = carve_.take<I>(p.index_bytes == 1 || layout_.blocks > 1 ? n : 0);
    stage_ = carve_.take<S>(kRing ? stage_size() : 0);
  }

  // Called once per thread. Between units, the ring is all zero.
  void begin() {
    if (kRing) memset((void*)ring_, 0, (layout_.ring + kTwoVectors) * sizeof(T));
    if (!has_places()) return;
    int64_t n = layout_.piece * layout_.block, each = layout_.group ? windows_size() : n;
    for (int64_t i = 0, image = 0; i < n; image += image_size())
      for (int64_t end = i + each; i < end; i += layout_.block)
        for (int64_t c = 0; c < layout_.block; c++) places_[i + c] = (uint32_t)(image + c);
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    int64_t segments = layout_.segments, per_image = layout_.blocks * segments;
    S* out = (S*)arrays_.out;
    Sink<S> sink(out + first_element(begin), out + first_element(end), stage_, kRing ? stage_size() : 0, kRing && arrays_.stream);
    sink_ = &sink;
    zeros_ = out + first_element(begin), zeros_end_ = out + first_element(end);
    for (int64_t unit = begin, n; unit < end && !strays_; unit += n) {
      int64_t segment = unit % segments, image = unit / per_image;
      n = smaller(layout_.group ? layout_.group : segments - segment, end - unit);
      out_ = out + image * image_size();
      shift_ = kRing && layout_.blocks == 1 ? (uintptr_t)out_ / sizeof(S) % kTwoVectors : 0;
      grad_ = (const S*)arrays_.grad + image * windows_size();
      index_ = image * windows_size();
      if (layout_.group) scatter_images(n);
      else scatter_slices(unit / segments % layout_.blocks * layout_.block, slice_of(segment), slice_of(segment + n));
    }
    if (!kRing) open(zeros_end_);
    if (layout_.blocks == 1) sink.finish();
    fault.retry |= strays_;
  }

 private:
  uint64_t step() const { return kRing ? layout_.block : layout_.channels; }  // elements between cells
  int64_t image_size() const { return p_.cells() * layout_.channels; }
  int64_t windows_size() const { return larger(p_.windows() * layout_.channels, 1); }
  int64_t stage_size() const { return Sink<S>::stage_size(kFlush, arrays_.tight ? 0 : 4096); }
  int64_t slice_of(int64_t segment) const { return layout_.slices * segment / layout_.segments; }
  // Returns whether the kernel needs the table places_. `find_places` always reads the table. `for_each` needs no table
  // if its inner loop is long: a loop over the windows of a plane, or over the channels of a window.
  bool has_places() const {
    if (kRing && layout_.channels > 1) return true;
    return layout_.channels == 1 ? layout_.group && p_.windows() < kLine : layout_.group || layout_.channels < kLine;
  }
  // Returns true if a plane has few windows for its size. Then most cells are only set to zero, and the zeros need not
  // stay in the cache.
  bool few_windows() const { return p_.cells() * (int64_t)sizeof(S) >= kFew * p_.windows(); }
  // Returns where the result of a unit begins, if blocks have all channels.
  int64_t first_element(int64_t unit) const {
    return unit / (layout_.blocks * layout_.segments) * image_size() +
           slice_of(unit % layout_.segments) * layout_.slice * layout_.channels;
  }

  // Scatters n small images.
  void scatter_images(int64_t n) {
    block_at_ = 0, width_ = layout_.channels, done_ = 0;
    Cells all{0, p_.cells()};
    if (!kRing) open(out_ + n * image_size());
    add(0, n * p_.windows(), all, all);
    close(n * p_.cells());
  }

  // Scatters the channels from c on into the slices from … to - 1.
  void scatter_slices(int64_t c, int64_t from, int64_t to) {
    const Axis& axis = layout_.axis;
    int64_t o = 0, last = axis.windows, slice = layout_.slice, row = layout_.row;
    while (o < last && end_of(axis, o) <= from) o++;
    while (last > o && axis.start[last - 1] >= to) last--;
    block_at_ = c, width_ = smaller(layout_.block, layout_.channels - c), done_ = from * slice;
    for (int64_t q = o * row, next; q < last * row && !strays_; q = next) {
      next = smaller(q + layout_.piece, last * row);
      Cells band = band_of(q, next), here{from * slice, to * slice};
      if (band.from < here.from || band.to > here.to) {  // take windows of one band, or a stray could be skipped
        next = smaller(next, (q / row + 1) * row);
        band = band_of(q, next);
      }
      Cells mine{larger(band.from, here.from), smaller(band.to, here.to)};
      if (kRing) close(mine.from);
      if (!kRing) open(out_ + mine.to * layout_.channels);
      add(q, next, mine, band);
    }
    close(to * slice);
  }

  // Returns the cells of the slices that the windows q … next - 1 hold.
  Cells band_of(int64_t q, int64_t next) const {
    const Axis& axis = layout_.axis;
    return {axis.start[q / layout_.row] * layout_.slice, end_of(axis, (next - 1) / layout_.row) * layout_.slice};
  }

  // Sets the result before `end` to zero, and usually also the elements after `end`, because many small memsets take
  // longer than one large memset.
  void open(S* end) {
    if (end <= zeros_) return;
    int64_t n = smaller(larger(end - zeros_, few_windows() ? zeros_end_ - zeros_ : kZeros), zeros_end_ - zeros_);
    memset((void*)zeros_, 0, n * sizeof(S));
    zeros_ += n;
  }

  // Writes the cells before `end`, which no later window holds.
  void close(int64_t end) {
    if (!kRing || done_ >= end) return;
    if (layout_.blocks == 1) {
      empty(done_ * layout_.channels, end * layout_.channels);
      done_ = end;
    }
    for (; done_ < end; done_++) empty_cell();
  }

  // Writes the elements from … end - 1 of the image, and sets them to zero in the ring. The first part ends where
  // vectors are aligned, in the ring and in the result.
  void empty(int64_t from, int64_t end) {
    for (int64_t n; from < end; from += n) {
      T* sums = ring_ + ((from + shift_) & (layout_.ring - 1));
      int64_t unaligned = (from + shift_) % kTwoVectors;
      n = smaller(unaligned ? kTwoVectors - unaligned : kFlush, smaller(ring_ + layout_.ring - sums, end - from));
      S* to = sink_->reserve(n);
      with_storage<S>(p_, [&](auto s) { round_and_clear((decltype(s)*)to, sums, n); });
      sink_->commit(to, n);
    }
  }

  template <class X> static void round_and_clear(X* to, T* sums, int64_t n) {
    int64_t i = 0;
    for (; i + kTwoVectors <= n; i += kTwoVectors) {
      write(to + i, pack_two(X{}, load(sums + i), load(sums + i + L)));
      store(sums + i, typename Lanes<T>::V{}), store(sums + i + L, typename Lanes<T>::V{});
    }
    if (i < n) {
      write(to + i, pack_two(X{}, load(sums + i), load(sums + i + L)));
      memset((void*)(sums + i), 0, (n - i) * sizeof(T));
    }
  }

  // The same for one cell of a block: in the result, the channels of other blocks surround it.
  void empty_cell() {
    T* sums = ring_ + (done_ * layout_.block & (layout_.ring - 1));
    S* to = out_ + done_ * layout_.channels + block_at_;
    __builtin_prefetch(to + kCellsAhead * layout_.channels, 1);
    with_storage<S>(p_, [&](auto s) {
      auto* rounded = (decltype(s)*)to;
      int64_t i = 0;
      for (; i + L <= width_; i += L) store(rounded + i, load(sums + i));
      if (i < width_) store_part(rounded + i, load(sums + i), width_ - i);
    });
    for (int64_t i = 0; i < layout_.block; i += L) store(sums + i, typename Lanes<T>::V{});
  }

  // Adds the gradients of the windows from … to - 1. `band` is the range of cells that these windows hold, `mine` is
  // the part of the band in this segment. An index outside the band is a stray: the result is then unusable. An index
  // in the band, but not in `mine`, is skipped: another segment adds its gradient.
  void add(int64_t from, int64_t to, Cells mine, Cells band) {
    int64_t first = from * layout_.channels + block_at_, n = (to - from) * width_;
    const S* g = grad_ + first;
    const I* index = indices(index_ + first, from, to - from);
    const uint64_t start = mine.from * step() + shift_, span = larger(mine.to - mine.from, 0);
    const auto is_stray = [=](int64_t cell) { return cell < band.from || cell >= band.to; };
    bool strays = false;
    const T* wide = layout_.blocks > 1 ? collected(g, to - from) : with_storage<S>(p_, [&](auto s) { return widened((const decltype(s)*)g, n, grads_, n); });
    if (kRing && layout_.channels > 1 && width_ == layout_.block) {  // places_ has the channels of a whole block
      Ring ring{(uint32_t)step(), (uint32_t)shift_, (uint32_t)(layout_.ring - 1)};
      if (find_places<I>(index, places_, n, mine.from, mine.to, ring, at_)) return add_to_ring(wide, n);
    }
    const uint64_t mask = layout_.ring - 1;
    T* sums = kRing ? ring_ : (T*)(void*)out_;
    for_each(index, g, to - from, [=, &strays](int64_t i, uint64_t place, uint64_t step) {
      uint64_t cell = (uint64_t)index[i] - mine.from;
      if (__builtin_expect(cell >= span, 0)) strays |= is_stray(index[i]);
      else sums[kRing ? (start + cell * step + place) & mask : index[i] * step + place] += wide[i];
    });
    strays_ |= strays;
  }

  // Adds n gradients at the places that were found.
  void add_to_ring(const T* wide, int64_t n) {
    T* ring = ring_;
    const uint32_t* at = at_;
#pragma GCC unroll 16
    for (int64_t i = 0; i < n; i++) ring[at[i]] += wide[i];
  }

  // Calls use(i, place, step) for each element i of `windows` windows. The sum of element i is at position
  // index[i] * step + place. Prefetches indices and gradients, because the hardware prefetcher stops at the end of a
  // page.
  template <class F> void for_each(const I* index, const S* g, int64_t windows, F use) const {
    const uint64_t step = this->step();
    const uint32_t* places = places_;
    if (layout_.channels == 1 && !has_places()) {
      int64_t each = layout_.group ? p_.windows() : windows;
      for (int64_t first = 0, place = 0; first < windows; first += each, place += p_.cells())
        for_lines(index + first, g + first, each, [=](int64_t i) { use(first + i, place, 1); });
    } else if (layout_.channels == 1) {
      for_lines(index, g, windows, [=](int64_t i) { use(i, places[i], 1); });
    } else if (layout_.group || layout_.channels < kLine) {
      for_lines(index, g, windows * width_, [=](int64_t i) { use(i, places[i], step); });
    } else {
      for (int64_t first = 0, n = windows * width_; first < n; first += width_)
        for_lines(index + first, g + first, width_, [=](int64_t c) { use(first + c, c, step); });
    }
  }

  // Calls use(i) for i = 0 … n - 1, a line of the cache at a time.
  template <class F> static void for_lines(const I* index, const S* g, int64_t n, F use) {
    int64_t i = 0;
    for (; i + kLine <= n; i += kLine) {
      __builtin_prefetch((const char*)(index + i) + kAhead);
      __builtin_prefetch((const char*)(g + i) + kAhead / 2);
#pragma GCC unroll 16
      for (int64_t k = i; k < i + kLine; k++) use(k);
    }
    for (; i < n; i++) use(i);
  }

  // Returns the gradients of a block of channels of some windows, without gaps.
  const T* collected(const S* g, int64_t windows) {
    for (int64_t k = 0; k < windows; k++, g += layout_.channels) {
      int64_t i = 0;
      T* to = grads_ + k * width_;
      with_storage<S>(p_, [&](auto s) {
        const auto* from = (const decltype(s)*)g;
        for (; i + L <= width_; i += L) store(to + i, load(from + i));
        if (i < width_) store(to + i, load_part(from + i, width_ - i));
      });
    }
    return grads_;
  }

  // Returns the cells that the indices of some windows name, without gaps. `at` is the position of the first index.
  const I* indices(int64_t at, int64_t q, int64_t windows) {
    if (p_.index_bytes > 1 && layout_.blocks == 1) return (const I*)arrays_.indices + at;
    int64_t together = layout_.blocks == 1 ? windows : 1;
    for (int64_t k = 0; k < windows; k += together, at += layout_.channels) {
      if (p_.index_bytes > 1) memcpy(indices_ + k * width_, (const I*)arrays_.indices + at, width_ * sizeof(I));
      else if constexpr (sizeof(I) == 8) decode_offsets(p_, (const uint8_t*)arrays_.indices + at, q + k, together, width_, indices_ + k * width_);
    }
    return indices_;
  }

  const Problem& p_;
  const Arrays& arrays_;
  const ScatterLayout layout_;
  Carve carve_;
  T *ring_, *grads_;
  uint32_t* places_;  // per element of a piece: its channel plus the offset of its image in the group
  uint32_t* at_;      // where the sums of the elements of a piece are
  I* indices_;
  S* stage_;
  Sink<S>* sink_ = nullptr;
  // The current image or images, the current block of channels, and the first cell that is not closed yet.
  S* out_ = nullptr;
  const S* grad_ = nullptr;
  int64_t index_ = 0;  // the position of the first index
  int64_t block_at_ = 0, width_ = 0, done_ = 0;
  S *zeros_ = nullptr, *zeros_end_ = nullptr;  // what is still to be set to zero
  int64_t shift_ = 0;  // how far elements move in the ring, so that the ring and the result are aligned alike
  bool strays_ = false;
};

}  // namespace
}  // namespace pooltide
