// Gradients of pools over regions: each unit keeps the sums of some rows of kBlock channels of one image.
//
// It visits the regions of the image in ascending order, and adds their terms to the cells of its rows; so a cell's
// terms are added in the same order, however the planes are cut into units. Then the sums are rounded and written.
// Sums have the channels side by side. Those of roi_pool have not, if the result is planes: its terms go to other
// cells in each channel. In float32 and float64 they are added in the result itself then.

#pragma once

#include "blocks.h"

namespace pooltide {
namespace {

template <class S> class RegionGradient {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  static constexpr int L = lanes<S>, n = Block<S>::n;

 public:
  RegionGradient(const Regions& r, const RegionArrays& a, int64_t rows, void* scratch)
      : r_(r), a_(a), carve_(scratch), lists_(r, a, carve_), in_planes_(r.maxima() && !r.channels_last),
        in_place_(in_planes_ && std::is_same_v<S, T>), sums_(carve_.take<T>(in_place_ ? 0 : rows * r.width * kBlock)) {}
  int64_t scratch() const { return carve_.used(); }

  void run(const RegionUnit& u, Fault& fault) {
    if (in_planes_) return run_in_planes(u, fault);
    int64_t begin = u.row_end, end = u.row_begin;  // the rows that regions touch
    const Box<T>* boxes = static_cast<const Box<T>*>(a_.boxes);
    for (int64_t i = a_.first[u.image]; i < a_.first[u.image + 1]; i++) {
      const Box<T>& box = boxes[a_.order[i]];
      begin = smaller(begin, larger(box.row_begin, u.row_begin)), end = larger(end, smaller(box.row_end, u.row_end));
    }
    begin = smaller(begin, end);
    memset(sums_ + (begin - u.row_begin) * r_.width * kBlock, 0, (end - begin) * r_.width * kBlock * sizeof(T));
    for (int64_t i = a_.first[u.image]; i < a_.first[u.image + 1]; i++) {
      int64_t region = a_.order[i];
      const Box<T>& box = boxes[region];
      if (box.row_begin >= u.row_end || box.row_end <= u.row_begin) continue;
      auto grad = region_block(r_, static_cast<const S*>(a_.source), u, region);
      if (r_.maxima()) add_maxima(u, region, grad, {sums_, 1, kBlock}, fault);
      else if (r_.sampled) add_samples(u, box, grad);
      else add_cells(u, box, grad);
    }
    write(u, begin, end);
  }

 private:
  void run_in_planes(const RegionUnit& u, Fault& fault) {
    auto to = image_block(r_, static_cast<S*>(a_.out), u, 0);
    int64_t begin = u.row_begin * r_.width, cells = (u.row_end - u.row_begin) * r_.width;
    Lattice<T> sums = {sums_, cells, 1};
    if (in_place_) sums = {(T*)(to.base + begin), to.lane, 1};
    for (int64_t c = 0; c < u.channels; c++) memset(sums.base + c * sums.lane, 0, cells * sizeof(T));
    for (int64_t i = a_.first[u.image]; i < a_.first[u.image + 1]; i++)
      add_maxima(u, a_.order[i], region_block(r_, static_cast<const S*>(a_.source), u, a_.order[i]), sums, fault);
    for (int64_t c = 0; c < u.channels && !in_place_; c++) round_row(sums.base + c * cells, cells, to.base + c * to.lane + begin);
  }

  static void round_row(const T* from, int64_t count, S* to) {
    int64_t i = 0;
    for (; i + L <= count; i += L) store(to + i, read<V>(from + i));
    if (i < count) {
      T padded[L] = {};
      memcpy(padded, from + i, (count - i) * sizeof(T));
      store_part(to + i, read<V>(padded), count - i);
    }
  }

  void add_samples(const RegionUnit& u, const Box<T>& box, const Lattice<const S>& grad) {
    Span down = {0, r_.bins_h}, across = {0, r_.bins_w};
    if (u.bin >= 0) down = {u.bin / r_.bins_w, u.bin / r_.bins_w + 1}, across = {u.bin % r_.bins_w, u.bin % r_.bins_w + 1};
    lists_.fill(r_, box, down, across);
    int64_t count = int64_t(box.count);
    bool exact = count > 0 && (count & (count - 1)) == 0;  // then a product has the quotient's bits
    if (exact) add_bins<true>(u, T(1) / box.count, grad, down, across);
    else add_bins<false>(u, box.count, grad, down, across);
  }

  template <bool exact> void add_bins(const RegionUnit& u, T divisor, const Lattice<const S>& grad, Span down, Span across) {
    for (int64_t ph = down.begin; ph < down.end; ph++) {
      int64_t begin = lists_.rows_at[ph], end = lists_.rows_at[ph + 1];
      while (begin < end && !touches(u, lists_.rows[begin])) begin++;
      while (begin < end && !touches(u, lists_.rows[end - 1])) end--;
      if (begin == end) continue;
      for (int64_t pw = across.begin; pw < across.end; pw++) {
        Block<S> g = read_block(grad.base + (ph * r_.bins_w + pw) * grad.cell, grad.lane, u.channels);
        const Sample<T>*left = lists_.columns + lists_.columns_at[pw], *right = lists_.columns + lists_.columns_at[pw + 1];
        for (int64_t row = begin; row < end; row++) {
          const Sample<T>& y = lists_.rows[row];
          if (holds(u, y.low) && holds(u, y.high)) add_row<exact, true, true>(u, divisor, g, y, left, right);
          else if (holds(u, y.low)) add_row<exact, true, false>(u, divisor, g, y, left, right);
          else if (holds(u, y.high)) add_row<exact, false, true>(u, divisor, g, y, left, right);
        }
      }
    }
  }

  static bool holds(const RegionUnit& u, int64_t row) { return row >= u.row_begin && row < u.row_end; }
  static bool touches(const RegionUnit& u, const Sample<T>& y) { return holds(u, y.low) || holds(u, y.high); }

  // The samples of a row of samples in a bin.
  template <bool exact, bool upper, bool lower>
  void add_row(const RegionUnit& u, T divisor, const Block<S>& g, const Sample<T>& y, const Sample<T>* x, const Sample<T>* end) {
    T* top = sums_ + (y.low - u.row_begin) * r_.width * kBlock;
    T* bottom = sums_ + (y.high - u.row_begin) * r_.width * kBlock;
    for (; x < end; x++) {
      if (upper) add<exact>(top + x->low * kBlock, g, y.before * x->before, divisor);
      if (upper) add<exact>(top + x->high * kBlock, g, y.before * x->after, divisor);
      if (lower) add<exact>(bottom + x->low * kBlock, g, y.after * x->before, divisor);
      if (lower) add<exact>(bottom + x->high * kBlock, g, y.after * x->after, divisor);
    }
  }

  template <bool exact> static POOLTIDE_INLINE void add(T* to, const Block<S>& g, T weight, T divisor) {
    for (int i = 0; i < n; i++) {
      V term = exact ? g.v[i] * weight * divisor : g.v[i] * weight / divisor;
      pooltide::write(to + i * L, read<V>(to + i * L) + term);
    }
  }

  void add_cells(const RegionUnit& u, const Box<T>& box, const Lattice<const S>& grad) {
    Span rows = cells_of_bin(box.h, u.bin / r_.bins_w, r_.height), columns = cells_of_bin(box.w, u.bin % r_.bins_w, r_.width);
    T number = T((rows.end - rows.begin) * (columns.end - columns.begin));
    if (rows.end <= rows.begin || columns.end <= columns.begin) return;
    Block<S> g = read_block(grad.base + u.bin * grad.cell, grad.lane, u.channels);
    for (int i = 0; i < n; i++) g.v[i] = g.v[i] / number;
    for (int64_t y = larger(rows.begin, u.row_begin); y < smaller(rows.end, u.row_end); y++) {
      T* to = sums_ + ((y - u.row_begin) * r_.width + columns.begin) * kBlock;
      for (int64_t x = columns.begin; x < columns.end; x++, to += kBlock)
        for (int i = 0; i < n; i++) pooltide::write(to + i * L, read<V>(to + i * L) + g.v[i]);
    }
  }

  void add_maxima(const RegionUnit& u, int64_t region, const Lattice<const S>& grad, const Lattice<T>& sums, Fault& fault) {
    if (in_planes_ && r_.index_bytes == 4) add_indexed<int32_t, true>(u, region, grad, sums, fault);
    else if (in_planes_) add_indexed<int64_t, true>(u, region, grad, sums, fault);
    else if (r_.index_bytes == 4) add_indexed<int32_t, false>(u, region, grad, sums, fault);
    else add_indexed<int64_t, false>(u, region, grad, sums, fault);
  }

  // `sums`: those of the unit's rows.
  template <class Index, bool planes>
  void add_indexed(const RegionUnit& u, int64_t region, const Lattice<const S>& grad, const Lattice<T>& sums, Fault& fault) {
    auto places = region_block(r_, static_cast<const Index*>(a_.indices), u, region);
    uint64_t begin = u.row_begin * r_.width, cells = (u.row_end - u.row_begin) * r_.width;
    const int64_t bins = r_.bins(), step = planes ? 1 : places.cell, sum_step = planes ? 1 : sums.cell;
    for (int64_t c = 0; c < u.channels; c++)
      for (int64_t bin = 0; bin < bins; bin++) {
        int64_t place = places.base[bin * step + c * places.lane];
        if (uint64_t(place) - begin < cells)
          sums.base[(place - begin) * sum_step + c * sums.lane] += widen(grad.base[bin * step + c * grad.lane]);
        else if (u.row_begin == 0 && (place < -1 || place >= r_.cells()))
          fault.add(r_.regions + (region * r_.pooled() + u.channel + c) * r_.bins() + bin, place);
      }
  }

  // Writes the unit's rows of the result; only the rows from begin to end have sums.
  void write(const RegionUnit& u, int64_t begin, int64_t end) {
    auto to = image_block(r_, static_cast<S*>(a_.out), u, u.bin);
    int64_t width = r_.width;
    const T* sums = sums_ + (begin - u.row_begin) * width * kBlock;
    if (r_.channels_last) {
      static constexpr Block<S> kZero = {};
      for (int64_t cell = u.row_begin * width; cell < u.row_end * width; cell++) {
        Block<S> block = kZero;
        bool summed = cell >= begin * width && cell < end * width;
        for (int i = 0; summed && i < n; i++) block.v[i] = read<V>(sums + (cell - begin * width) * kBlock + i * L);
        write_block(to.base + cell * to.cell, to.lane, u.channels, block);
      }
      return;
    }
    for (int64_t c = 0; c < u.channels; c++) {
      S* plane = to.base + c * to.lane;
      memset(plane + u.row_begin * width, 0, (begin - u.row_begin) * width * sizeof(S));
      memset(plane + end * width, 0, (u.row_end - end) * width * sizeof(S));
    }
    unstage<S>(sums, to.lane, u.channels, (end - begin) * width, to.base + begin * width);
  }

  const Regions& r_;
  const RegionArrays& a_;
  Carve carve_;
  SampleLists<T> lists_;
  bool in_planes_, in_place_;
  T* sums_;
};

}  // namespace
}  // namespace pooltide
