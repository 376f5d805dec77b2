// Gradients of averages over long rows: each row is divided into segments of cells, and the tables per cell
// are made for one segment at a time. A table for the whole row would take more memory than the row.
//
// A segment is computed as a problem of one plane and one row, with the windows that hold its cells. A unit is
// a segment.

#pragma once

#include "average.h"

namespace pooltide {

void describe_cells(Axis& axis);  // of prepared.cpp

namespace {

template <class S> class LongRow {
  static constexpr int64_t kCells = 4096, kWindows = 1 << 16, kTightCells = 6;
  static constexpr Lines kChoices[] = {Lines::shifted, Lines::phased, Lines::picked, Lines::single};

 public:
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (p.channels_last) return "the arrays are channels-last";
    if (p.d.cells * p.h.cells != 1 || p.d.windows * p.h.windows != 1) return "a plane has more than one row";
    return ignore_speed || p.w.cells > kLongRow ? nullptr : "the row is short";
  }

  static int64_t units(const Problem& p) { return p.planes() * segments(p); }
  static int64_t scratch(const Problem& p, const Arrays& arrays) {
    LongRow self(p, arrays, nullptr);
    return self.carve_.used() + self.inner_scratch();
  }
  static void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* scratch, Fault&) {
    LongRow self(p, arrays, scratch);
    for (int64_t unit = begin; unit < end; unit++) self.compute(unit / segments(p), unit % segments(p));
  }

 private:
  LongRow(const Problem& p, const Arrays& arrays, void* scratch) : p_(p), arrays_(arrays), carve_(scratch) {
    first_ = carve_.take<int32_t>(kCells + kMostLanes);
    count_ = carve_.take<int32_t>(kCells + kMostLanes);
    inner_ = carve_.take<char>(0);
  }

  static int64_t segment_cells(const Problem& p) {
    int64_t fit = kWindows * p.w.cells / larger(p.w.windows, 1);
    return p.w.cells <= kLongRow ? kTightCells : larger(16, smaller(kCells, fit)) / 2 * 2;
  }
  static int64_t segments(const Problem& p) { return (p.w.cells + segment_cells(p) - 1) / segment_cells(p); }

  // Returns the number of windows that end at or before a cell. Window ends ascend.
  int64_t ended(int64_t cell) const {
    int64_t low = 0, high = p_.w.windows;
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (p_.w.start[middle] + p_.w.length[middle] <= cell) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // Returns a size that is enough for any segment: that of a segment with the most windows, each cell in all of
  // them.
  int64_t inner_scratch() const {
    int64_t n = segment_cells(p_), windows = 0, most = 0;
    for (int64_t i = 0; i < segments(p_); i++) {
      int64_t last = smaller((i + 1) * n, p_.w.cells) - 1, to = ended(last);
      while (to < p_.w.windows && p_.w.start[to] <= last) to++;
      windows = larger(windows, to - ended(i * n));
    }
    Problem whole = p_;
    whole.batch = whole.channels = 1;
    whole.w.cells = n, whole.w.windows = windows, whole.w.most = windows + n, whole.w.back = n;
    for (Lines lines : kChoices)
      for (int tight = 0; tight < 2; tight++) {
        Arrays arrays = arrays_;
        arrays.tight = tight;
        most = larger(most, AverageGradient<S>::scratch(whole, arrays, lines));
      }
    return most + 3 * LineLayout<S>::kCachedBytes * 8;  // and the divisors of a resident row
  }

  void compute(int64_t plane, int64_t segment) {
    int64_t n = segment_cells(p_), from = segment * n, to = smaller(from + n, p_.w.cells);
    Problem part = p_;
    part.batch = part.channels = 1;
    Axis& w = part.w;
    int64_t before = ended(from), begun = before, over = before;
    for (int64_t i = from; i < to; i++) {
      while (begun < p_.w.windows && p_.w.start[begun] <= i) begun++;
      while (over < p_.w.windows && p_.w.start[over] + p_.w.length[over] <= i) over++;
      first_[i - from] = (int32_t)(over - before), count_[i - from] = (int32_t)larger(0, begun - over);
    }
    for (int64_t i = to - from; i < to - from + kMostLanes; i++) first_[i] = first_[to - from - 1], count_[i] = 0;
    w.cells = to - from, w.windows = larger(begun, over) - before, w.divisor = p_.w.divisor + before;
    w.first = first_, w.count = count_;
    describe_cells(w);
    part.same_divisor = true;
    for (int64_t o = 1; o < w.windows; o++) part.same_divisor = part.same_divisor && w.divisor[o] == w.divisor[0];
    part.same_divisor = part.same_divisor || part.quotient == Quotient::constant;
    Arrays arrays = arrays_;
    arrays.grad = (const S*)arrays_.grad + plane * p_.w.windows + before;
    arrays.out = (S*)arrays_.out + plane * p_.w.cells + from;
    for (Lines lines : kChoices)
      if (!LineLayout<S>::refuse(part, lines, false)) return AverageGradient<S>(part, arrays, lines, inner_).run(0, 1);
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  int32_t *first_, *count_;
  char* inner_;
};

}  // namespace
}  // namespace pooltide
