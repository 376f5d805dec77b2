// Pools over regions: kBlock channels of a bin at once.
//
// Channels-last images are read as they are, planes channel by channel; or, where regions read the cells of the
// planes often enough, from a copy of the planes that has the channels side by side.

#pragma once

#include "blocks.h"

namespace pooltide {
namespace {

template <class S> class RegionForward {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  using I = typename Lanes<T>::I;
  using Int = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  static constexpr int L = lanes<S>, n = Block<S>::n;
  static constexpr double kLowest = -3.40282346638528859812e+38;  // of float: where a maximum starts, of any type

 public:
  RegionForward(const Regions& r, const RegionArrays& a, bool staged, void* scratch)
      : r_(r), a_(a), carve_(scratch), lists_(r, a, carve_), copy_(carve_.take<T>(staged ? r.cells() * kBlock : 0)) {}
  int64_t scratch() const { return carve_.used(); }

  void run(const RegionUnit& u) {
    auto image = image_block(r_, static_cast<const S*>(a_.source), u, 0);
    if (u.staged) {
      stage(image.base, image.lane, u.channels, r_.cells(), copy_);
      pool<T>({copy_, 1, kBlock}, 0, kBlock, u);
      return;
    }
    int64_t to_next_bin = r_.position_sensitive ? (r_.channels_last ? 1 : r_.cells()) : 0;
    pool<S>(image, to_next_bin, u.channels, u);
  }

 private:
  // X: the type of the cells that are read.
  template <class X> void pool(Lattice<const X> image, int64_t to_next_bin, int64_t count, const RegionUnit& u) {
    const Box<T>* boxes = static_cast<const Box<T>*>(a_.boxes);
    for (int64_t i = u.begin; i < u.end; i++) {
      int64_t region = a_.order[i];
      const Box<T>& box = boxes[region];
      auto out = region_block(r_, static_cast<S*>(a_.out), u, region);
      if (r_.sampled) lists_.fill(r_, box, {0, r_.bins_h}, {0, r_.bins_w});
      for (int64_t bin = 0; bin < r_.bins(); bin++) {
        Lattice<const X> at = {image.base + bin * to_next_bin, image.lane, image.cell};
        int64_t ph = bin / r_.bins_w, pw = bin % r_.bins_w;
        Block<S> result;
        if (r_.sampled) result = sampled(at, count, box, ph, pw);
        else if (r_.position_sensitive) result = mean(at, count, box, ph, pw);
        else result = maximum(at, count, box, ph, pw, u, region);
        write_block(out.base + bin * out.cell, out.lane, u.channels, result);
      }
    }
  }

  template <class X> Block<S> sampled(const Lattice<const X>& image, int64_t count, const Box<T>& box, int64_t ph, int64_t pw) {
    Block<S> sum = {};
    const Sample<T>*left = lists_.columns + lists_.columns_at[pw], *right = lists_.columns + lists_.columns_at[pw + 1];
    for (int64_t row = lists_.rows_at[ph]; row < lists_.rows_at[ph + 1]; row++) {
      const Sample<T>& y = lists_.rows[row];
      const X* top = image.base + y.low * r_.width * image.cell;
      const X* bottom = image.base + y.high * r_.width * image.cell;
      for (const Sample<T>* x = left; x < right; x++) {
        auto a = read_block(top + x->low * image.cell, image.lane, count), b = read_block(top + x->high * image.cell, image.lane, count);
        auto c = read_block(bottom + x->low * image.cell, image.lane, count), d = read_block(bottom + x->high * image.cell, image.lane, count);
        T w1 = y.before * x->before, w2 = y.before * x->after, w3 = y.after * x->before, w4 = y.after * x->after;
        for (int i = 0; i < n; i++) sum.v[i] += w1 * a.v[i] + w2 * b.v[i] + w3 * c.v[i] + w4 * d.v[i];
      }
    }
    for (int i = 0; i < n; i++) sum.v[i] = sum.v[i] / box.count;
    return sum;
  }

  // torchvision's mean leaves out the last row and the last column of the plane; its gradient does not.
  template <class X> Block<S> mean(const Lattice<const X>& image, int64_t count, const Box<T>& box, int64_t ph, int64_t pw) {
    Block<S> sum = {};
    Span rows = cells_of_bin(box.h, ph, r_.height - 1), columns = cells_of_bin(box.w, pw, r_.width - 1);
    for (int64_t y = rows.begin; y < rows.end; y++)
      for (int64_t x = columns.begin; x < columns.end; x++) {
        auto cell = read_block(image.base + (y * r_.width + x) * image.cell, image.lane, count);
        for (int i = 0; i < n; i++) sum.v[i] += cell.v[i];
      }
    if (rows.end <= rows.begin || columns.end <= columns.begin) return sum;
    T number = T((rows.end - rows.begin) * (columns.end - columns.begin));
    for (int i = 0; i < n; i++) sum.v[i] = sum.v[i] / number;
    return sum;
  }

  template <class X> Block<S> maximum(const Lattice<const X>& image, int64_t count, const Box<T>& box, int64_t ph, int64_t pw,
                                      const RegionUnit& u, int64_t region) {
    Span rows = cells_of_bin(box.h, ph, r_.height), columns = cells_of_bin(box.w, pw, r_.width);
    bool empty = rows.end <= rows.begin || columns.end <= columns.begin;
    Block<S> value;
    I place[n];
    for (int i = 0; i < n; i++) value.v[i] = splat(empty ? T(0) : T(kLowest)), place[i] = I{} - 1;
    for (int64_t y = rows.begin; y < rows.end; y++)
      for (int64_t x = columns.begin; x < columns.end; x++) {
        auto cell = read_block(image.base + (y * r_.width + x) * image.cell, image.lane, count);
        for (int i = 0; i < n; i++) {
          I wins = cell.v[i] > value.v[i];
          value.v[i] = wins ? cell.v[i] : value.v[i];
          place[i] = wins ? I{} + Int(y * r_.width + x) : place[i];
        }
      }
    if (r_.index_bytes == 4) write_places<int32_t>(place, ph * r_.bins_w + pw, u, region);
    if (r_.index_bytes == 8) write_places<int64_t>(place, ph * r_.bins_w + pw, u, region);
    return value;
  }

  template <class Index> void write_places(const I* place, int64_t bin, const RegionUnit& u, int64_t region) {
    Int found[kBlock];
    for (int i = 0; i < n; i++) pooltide::write(found + i * L, place[i]);
    auto to = region_block(r_, static_cast<Index*>(a_.indices), u, region);
    for (int64_t c = 0; c < u.channels; c++) to.base[bin * to.cell + c * to.lane] = Index(found[c]);
  }

  const Regions& r_;
  const RegionArrays& a_;
  Carve carve_;
  SampleLists<T> lists_;
  T* copy_;
};

}  // namespace
}  // namespace pooltide
