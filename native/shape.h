// How an average problem is laid out in a thread's memory: which lines, how many rows of windows.

#pragma once

#include "divide.h"
#include "sink.h"

namespace pooltide {
namespace {

enum class Lines { shifted, slid, phased, picked, spread, gathered, channels };

// What each thread needs, in elements; `slot` is one divided row of windows, laid out in lines.
template <class S> struct Shape {
  using T = typename Sum<S>::T;
  static constexpr int64_t V = lanes<S>, kHeld = 64 << 10, kLists = 4096;
  Lines lines;
  bool resident;       // a slot for each row of windows of a plane
  bool dense = false;  // and nothing between them
  int64_t row, width, slot, offset = 0, deep, high, rows, tall, quotients, stage, lists;

  explicit Shape(const Problem& p) {
    row = p.channels_last ? p.w.cells * p.channels : p.w.cells;
    width = round_up(p.w.cells, V);
    rows = larger(1, smaller(p.h.windows, 2048 / (p.w.windows + 1)));
    quotients = p.channels_last ? 0 : rows * p.w.windows + p.w.most + 2 * V;
    deep = larger(p.d.most, 1);
    high = larger(p.h.most, 1);
    choose_lines(p);
    stage = Sink<S>::staging(p.channels_last ? p.channels : row);
    tall = lines == Lines::channels ? 1 : larger(1, (stage - stage / 8) / larger(row, 1));  // rows written at once
    lists = p.d.pairs * (p.h.pairs + p.h.cells) + 2;
    resident = !p.channels_last && lists <= kLists && p.d.windows * p.h.windows * slot * item() <= kHeld;
    if (resident) {
      deep = larger(p.d.windows, 1), high = larger(p.h.windows, 1);
      dense = lines == Lines::picked || (p.w.phase == Phase::alike && p.w.cells <= 2 * p.w.windows);
      if (dense) slot = p.w.windows, offset = 0;
    } else {
      int64_t fit = kHeld / 4 / (deep * slot * item());
      high = smaller(larger(p.h.windows, 1), larger(high, fit));
      lists = (tall + 2) * larger(1, p.d.most * p.h.most);
    }
  }

  void choose_lines(const Problem& p) {
    int64_t spread = larger(p.w.most, 1) * width;
    if (p.channels_last) {
      lines = Lines::channels, slot = p.w.windows * p.channels + V;
    } else if (p.w.shifted) {
      bool flat = p.d.cells == 1 && p.d.windows == 1;
      lines = flat && p.h.shifted && p.h.most == 3 && p.w.most == 3 ? Lines::slid : Lines::shifted;
      offset = round_up(p.w.back, V) - p.w.back;
      slot = offset + larger(width + p.w.most, p.w.back + p.w.windows) + V;
    } else if (p.w.phase != Phase::none) {
      lines = Lines::phased, offset = round_up(p.w.back, V) - p.w.back;
      slot = offset + larger(round_up(p.w.cells, 2 * V) / 2 + 2, p.w.back + p.w.windows + V) + V;
    } else if (Pick<T>::quick && p.w.gentle && p.w.most <= 3) {
      lines = Lines::picked, slot = p.w.windows + p.w.most + 2 * V;
    } else if (p.w.most <= 1 || deep * high * spread * item() <= (1 << 19)) {
      lines = Lines::spread, slot = spread;
    } else {
      lines = Lines::gathered, slot = p.w.windows + V;
    }
    slot = round_up(slot, V);
  }

  static constexpr int64_t item() { return sizeof(T); }
  int64_t slots() const { return deep * high; }
  bool padded() const {
    return !dense && (lines == Lines::shifted || lines == Lines::slid || lines == Lines::phased);
  }
};

// The lines of one row of windows; `width` cells each, padding included.
template <class T> void spread_lines(const Axis& w, const T* from, T* lines, int64_t width) {
  const int32_t *first = w.first, *count = w.count;
  int32_t most = (int32_t)w.most;
  for (int32_t j = 0; j < most; j++, lines += width)
    if (w.gentle) {
      for (int64_t i = 0; i < width; i += Lanes<T>::n)
        store(lines + i, Pick<T>(first + i, count + i)(from, j));
    } else {
      for (int64_t i = 0; i < width; i++) lines[i] = j < count[i] ? from[first[i] + j] : 0;
    }
}

// Cuts one block of memory into aligned arrays; with no block it counts.
class Carve {
 public:
  explicit Carve(void* block) : block_((uintptr_t)block) {}
  template <class X> X* take(int64_t n) {
    X* found = (X*)(block_ + used_);
    used_ += round_up(n * (int64_t)sizeof(X), 64);
    return found;
  }
  int64_t used() const { return used_; }

 private:
  uintptr_t block_;
  int64_t used_ = 0;
};

}  // namespace
}  // namespace pooltide
