// Gradients of averages: each cell of the result adds the quotients of the windows that hold it.
//
//     out[cell] = ((0 + q[1st window]) + q[2nd]) + …      windows ascending in (d, h, w)
//
// A quotient q is the gradient of a window, divided by the divisor of the window (quotients.h). line_layout.h
// describes the layout of the quotients in the scratch buffer. Input: grad_output. Output: grad_input.
// Some layouts add extra zeros. Adding +0 changes no sum, because no partial sum is ever -0: a quotient of -0 is first
// turned into +0.

#pragma once

#include "columns.h"
#include "line_layout.h"
#include "quotients.h"

namespace pooltide {
namespace {

// One thread's work. A unit is a row of cells of the result, in channels-last order with all its channels.
template <class S> class AverageGradient {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  static constexpr int64_t L = lanes<S>, kBlock = 2048 / (int64_t)sizeof(S);

 public:
  AverageGradient(const Problem& p, const Arrays& arrays, Lines lines, void* scratch)
      : p_(p), arrays_(arrays), layout_(p, lines, arrays.tight),
        same_division_(p, 0, 0, p.w.windows ? 0 : -1), carve_(scratch) {
    slots_ = carve_.take<T>(layout_.slots() * layout_.slot + p.w.most * layout_.each + 2 * L);
    zeros_ = carve_.take<T>(layout_.lines == Lines::sliding ? layout_.slot : 0);
    quotients_ = carve_.take<T>(layout_.quotients);
    divisors_ = carve_.take<T>(layout_.windows + L);
    bool per_window = layout_.resident && !p.same_divisor && (layout_.dense || layout_.padded());
    int64_t divisors = p.windows() * layout_.each + L;
    plane_divisors_ = {carve_.take<T>(per_window ? PlaneDivisors<T>::most(p) * divisors : 0), divisors};
    lists_ = carve_.take<const T*>(layout_.lists);
    rows_ = carve_.take<Row<T>>(layout_.resident ? p.d.groups * p.h.groups : 0);
    strip_ = carve_.take<Row<T>>(layout_.strip_rows);
    tags_ = carve_.take<int64_t>(layout_.resident ? 0 : layout_.slots());
    stage_ = carve_.take<S>(layout_.stage);
    halves_ = carve_.take<S>(layout_.lines == Lines::phased && layout_.each > 1 ? layout_.row + 4 * layout_.each + 8 * L : 0);
  }

  static int64_t units(const Problem& p) { return (p.channels_last ? p.batch : p.planes()) * p.d.cells * p.h.cells; }
  static int64_t scratch(const Problem& p, const Arrays& arrays, Lines lines) {
    return AverageGradient(p, arrays, lines, nullptr).carve_.used();
  }

  void run(int64_t begin, int64_t end) {
    prepare_slots();
    S* out = (S*)arrays_.out;
    Sink<S> sink(out + begin * layout_.row, out + end * layout_.row, stage_, layout_.stage, arrays_.stream);
    int64_t h = begin % p_.h.cells, d = begin / p_.h.cells % p_.d.cells;
    open_image(begin / p_.h.cells / p_.d.cells);
    for (int64_t left = end - begin; left > 0;) {
      int64_t most = smaller(smaller(left, layout_.strip_rows), p_.h.cells - h);
      int64_t done = layout_.lines == Lines::channels ? write_channels_row(d, h, sink) : write_strip(d, h, most, sink);
      left -= done;
      if ((h += done) < p_.h.cells || left == 0) continue;
      h = 0;
      if (++d < p_.d.cells) continue;
      d = 0;
      open_image(image_ + 1);
    }
    sink.finish();
  }

 private:
  void prepare_slots() {
    if (layout_.padded()) memset((void*)slots_, 0, layout_.slots() * layout_.slot * sizeof(T));
    if (layout_.lines == Lines::sliding) memset((void*)zeros_, 0, layout_.slot * sizeof(T));
    if (!layout_.resident) {
      for (int64_t i = 0; i < layout_.slots(); i++) tags_[i] = -1;
      return;
    }
    const T** list = lists_;
    Row<T>* row = rows_;
    for (int64_t d = 0; d < p_.d.cells; d += p_.d.run[d])
      for (int64_t h = 0; h < p_.h.cells; h += p_.h.run[h]) *row++ = list_row(d, h, h == 0, list);
  }

  // Divides the rows of windows of an image, if they are resident. An image is a plane, or all channels of a
  // batch element in channels-last order.
  void open_image(int64_t image) {
    image_ = image;
    int64_t size = p_.windows() * layout_.each;
    int64_t images = p_.channels_last ? p_.batch : p_.planes();
    grad_ = (const S*)arrays_.grad + image * size;
    grad_end_ = (const S*)arrays_.grad + images * size;
    if (!layout_.resident) return;
    if (layout_.dense || layout_.padded()) return divide_plane();
    for (int64_t od = 0; od < p_.d.windows; od++)
      for (int64_t oh = 0; oh < p_.h.windows; oh++) fill_slot(od, oh, slot(slot_of(od, oh)));
  }

  // Divides all rows of a plane at once. Dense slots follow each other, so they are divided as one row.
  void divide_plane() {
    T* to = slot(0) + layout_.back;
    int64_t rows = p_.d.windows * p_.h.windows, n = layout_.windows;
    if (layout_.dense) n *= rows, rows = 1;
    if (p_.same_divisor) {
      divide<S, T>({grad_, rows, n, grad_end_}, same_division_, nullptr, layout_.slot, to);
    } else {
      if (!plane_divisors_.n) plane_divisors_.fill(p_);
      plane_divisors_.template divide<S>({grad_, rows, n, grad_end_}, layout_.slot, to);
    }
    for (; !layout_.dense && rows > 0; rows--, to += layout_.slot) store(to + n, typename Lanes<T>::V{});
  }

  int64_t slot_of(int64_t od, int64_t oh) const {
    return modulo(od, layout_.slots_d) * layout_.slots_h + modulo(oh, layout_.slots_h);
  }
  T* slot(int64_t i) const { return slots_ + i * layout_.slot + layout_.offset; }

  // Returns the quotients of a row of windows. A slot of the ring is first filled if it holds another row.
  const T* window_row(int64_t od, int64_t oh) {
    int64_t i = slot_of(od, oh), row = (image_ * p_.d.windows + od) * p_.h.windows + oh;
    if (!layout_.resident && tags_[i] != row) {
      tags_[i] = row;
      fill_slot(od, oh, slot(i));
    }
    return slot(i);
  }

  void fill_slot(int64_t od, int64_t oh, T* lines) {
    if (layout_.lines == Lines::channels) return divide_channels(od, oh, lines);
    if (layout_.lines == Lines::picked) return divide_row(od, oh, lines);
    if (layout_.padded()) {
      divide_row(od, oh, lines + layout_.back);
      return store(lines + layout_.back + layout_.windows, typename Lanes<T>::V{});
    }
    int64_t row = (image_ * p_.d.windows + od) * p_.h.windows + oh;
    if (row < divided_from_ || row >= divided_to_) divide_rows(od, oh);
    const T* from = quotients_ + (row - divided_from_) * layout_.windows;
    if (layout_.lines == Lines::spread) {
      layout_.each > 1 ? spread_cells(p_.w, from, lines, layout_.width, layout_.each) : spread_lines(p_.w, from, lines, layout_.width);
    } else {
      copy_vectors(lines, from, p_.w.windows);
    }
  }

  const S* grad_row(int64_t od, int64_t oh) const {
    return grad_ + (od * p_.h.windows + oh) * layout_.windows;
  }

  // Divides several rows at once, from (od, oh) on. With one divisor for all, they are divided as one row, so
  // that no vector is partly empty.
  void divide_rows(int64_t od, int64_t oh) {
    int64_t n = smaller(layout_.divided_rows, p_.h.windows - oh);
    divided_from_ = (image_ * p_.d.windows + od) * p_.h.windows + oh;
    divided_to_ = divided_from_ + n;
    const S* g = grad_row(od, oh);
    if (p_.same_divisor) return divide<S, T>({g, 1, n * layout_.windows, grad_end_}, same_division_, nullptr, 0, quotients_);
    for (int64_t i = 0; i < n; i++) divide_row(od, oh + i, quotients_ + i * layout_.windows);
  }

  void divide_row(int64_t od, int64_t oh, T* to) {
    const S* g = grad_row(od, oh);
    if (p_.same_divisor) return divide<S, T>({g, 1, layout_.windows, grad_end_}, same_division_, nullptr, 0, to);
    prepare_divisors(od, oh);
    divide<S, T>({g, 1, layout_.windows, grad_end_}, Division<T>(p_, od, oh), divisors_, 0, to);
  }

  // Fills the last divisor of each window of a row; it rarely changes from row to row.
  void prepare_divisors(int64_t od, int64_t oh) {
    double factor = p_.quotient == Quotient::product ? double(p_.d.divisor[od]) * p_.h.divisor[oh] : 1;
    if (factor == divisors_factor_) return;
    divisors_factor_ = factor;
    T* to = divisors_;
    for (int64_t o = 0; o < p_.w.windows; o++)
      for (int64_t c = 0; c < layout_.each; c++) *to++ = T(factor * p_.w.divisor[o]);
    for (int64_t i = 0; i < L; i++) *to++ = 1;
  }

  void divide_channels(int64_t od, int64_t oh, T* to) const {
    const S* g = grad_row(od, oh);
    for (int64_t o = 0; o < p_.w.windows; o++, g += p_.channels, to += p_.channels)
      divide<S, T>({g, 1, p_.channels, grad_end_}, Division<T>(p_, od, oh, o), nullptr, 0, to);
  }

  // Appends to `list` the rows of quotients that row (d, h) of cells adds. `first`: the list is still empty.
  Row<T> list_row(int64_t d, int64_t h, bool first, const T**& list) {
    const T** begin = list;
    int32_t run = p_.h.run[h];
    if (layout_.lines == Lines::sliding) {  // rows share one list, three entries each
      for (int64_t k = first ? 0 : 2; k < 3; k++) {
        int64_t oh = h - p_.h.back + k;
        *list++ = oh >= 0 && oh < p_.h.windows ? window_row(0, oh) : zeros_ + layout_.offset;
      }
      return {list - 3, 3, run};
    }
    for (int64_t od = p_.d.first[d]; od < p_.d.first[d] + p_.d.count[d]; od++)
      for (int64_t oh = p_.h.first[h]; oh < p_.h.first[h] + p_.h.count[h]; oh++) *list++ = window_row(od, oh);
    return {begin, (int32_t)(list - begin), run};
  }

  // Writes up to `most` rows of cells from (d, h) on. Returns how many it wrote.
  int64_t write_strip(int64_t d, int64_t h, int64_t most, Sink<S>& sink) {
    const Row<T>* rows = layout_.resident ? rows_ + p_.d.group[d] * p_.h.groups : nullptr;
    int64_t count, done = rows ? whole_runs(h, most) : 0;
    if (done) {
      rows += p_.h.group[h];
      count = p_.h.group[h + done - 1] - p_.h.group[h] + 1;
    } else {
      done = list_rows(d, h, most, rows, count);
      rows = strip_;
    }
    S* to = sink.reserve(done * layout_.row);
    add_rows(rows, count, to);
    sink.commit(to, done * layout_.row);
    return done;
  }

  // Returns how many of the `most` rows from h on form whole runs.
  int64_t whole_runs(int64_t h, int64_t most) const {
    const int32_t* group = p_.h.group;
    if (h > 0 && group[h] == group[h - 1]) return 0;
    while (most > 0 && h + most < p_.h.cells && group[h + most] == group[h + most - 1]) most--;
    return most;
  }

  // Lists rows whose lists are not resident, or that begin or end within a run. Returns how many rows of cells
  // they are, and in `count` how many entries of strip_ they take.
  int64_t list_rows(int64_t d, int64_t h, int64_t most, const Row<T>* resident, int64_t& count) {
    const T** list = lists_;
    int64_t done = 0;
    for (count = 0; done < most; count++) {
      int64_t at = h + done, reach = p_.h.first[at] + p_.h.count[at] - p_.h.first[h];
      if (!resident && count && reach > layout_.slots_h) break;
      Row<T> row = resident ? resident[p_.h.group[at]] : list_row(d, at, count == 0, list);
      row.run = (int32_t)smaller(p_.h.run[at], most - done);
      strip_[count] = row, done += row.run;
    }
    return done;
  }

  // Adds a few kilobytes at a time, so that a result beyond the cache is fetched while other rows are added.
  void add_rows(const Row<T>* rows, int64_t count, S* to) {
    for (const Row<T>*end = rows + count, *next = rows; rows < end; rows = next) {
      int64_t cells = 0;
      while (next < end && cells < kBlock) cells += next++->run * layout_.row;
      add({rows, next - rows, to, layout_.row});
      to += cells;
    }
  }

  void add(const Strip<S>& strip) {
    const Axis& w = p_.w;
    switch (layout_.lines) {
      case Lines::sliding: return add_sliding(strip);
      case Lines::phased:
        if (layout_.each > 1) return WidePhases<S>(w, layout_.each).add_cells(strip, halves_);
        if (w.phase == Phase::alike) return add_phases<S, Phase::alike>(strip);
        if (w.phase == Phase::wide) return WidePhases<S>(w, 1).add(strip);
        if (w.phase == Phase::wide_even) return add_phases<S, Phase::wide_even>(strip);
        return add_phases<S, Phase::wide_odd>(strip);
      case Lines::picked:
        if (w.most == 1) return add_picked<S, 1>(strip, w);
        return w.most == 2 ? add_picked<S, 2>(strip, w) : add_picked<S, 3>(strip, w);
      case Lines::single: return add_cell_by_cell(strip);
      default: break;
    }
    int64_t step = layout_.lines == Lines::shifted ? layout_.each : layout_.width;
    if (w.most == 1) return add_strided<S, 1>(strip, 1, step);
    if (w.most == 2) return add_strided<S, 2>(strip, 2, step);
    w.most == 3 ? add_strided<S, 3>(strip, 3, step) : add_strided<S, 0>(strip, w.most, step);
  }

  void add_cell_by_cell(const Strip<S>& strip) const {
    const Axis& w = p_.w;
    for (int64_t i = strip.last(L); i >= 0; i -= L)
      strip.fill(i, [&, i](const T* const* from, int64_t n) {
        T sums[L] = {};
        for (int64_t k = 0; k < L && i + k < w.cells; k++)
          for (int64_t r = 0; r < n; r++)
            for (int64_t j = 0; j < w.count[i + k]; j++) sums[k] += from[r][w.first[i + k] + j];
        return pack(S{}, load(sums));
      });
  }

  int64_t write_channels_row(int64_t d, int64_t h, Sink<S>& sink) {
    const Axis& w = p_.w;
    const T **list = lists_, **cell = lists_ + layout_.lists / 2;
    int64_t n = list_row(d, h, true, list).n;
    for (int64_t i = 0; i < w.cells; i++) {
      for (int64_t r = 0; r < n; r++) cell[r] = lists_[r] + w.first[i] * p_.channels;
      S* to = sink.reserve(p_.channels);
      switch (w.count[i]) {
        case 0: add_channels<S, 1>(cell, 0, 0, p_.channels, to); break;
        case 1: add_channels<S, 1>(cell, n, 1, p_.channels, to); break;
        case 2: add_channels<S, 2>(cell, n, 2, p_.channels, to); break;
        case 3: add_channels<S, 3>(cell, n, 3, p_.channels, to); break;
        default: add_channels<S, 0>(cell, n, w.count[i], p_.channels, to);
      }
      sink.commit(to, p_.channels);
    }
    return 1;
  }

  const Problem& p_;
  const Arrays& arrays_;
  const LineLayout<S> layout_;
  const Division<T> same_division_;
  Carve carve_;
  T *slots_, *zeros_, *quotients_, *divisors_;
  PlaneDivisors<T> plane_divisors_;
  const T** lists_;
  Row<T> *rows_, *strip_;
  int64_t* tags_;
  S *stage_, *halves_;
  const S *grad_ = nullptr, *grad_end_ = nullptr;
  int64_t image_ = -1, divided_from_ = 0, divided_to_ = 0;
  double divisors_factor_ = -1;
};

}  // namespace
}  // namespace pooltide
