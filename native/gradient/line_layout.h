// The layout of an average gradient's quotients in a thread's scratch buffer.
//
// A row of windows (od, oh) is divided once. Its quotients are then arranged in lines, so that the sums of a
// row of cells are sums of vectors: there are `most` lines, and line j holds, for each cell, the quotient of
// the j-th window that holds the cell, or +0.
//
//     sliding    stride 1, 3 × 3 windows: three rows of quotients stay in registers
//     shifted    stride 1: line j is the row itself, j elements further on, between zeros
//     phased     stride 2: even and odd cells are sums of the row itself, then interleaved
//     picked     a line is a permutation of the row, computed in registers when it is added
//     spread     the lines are stored in memory
//     single     no lines: each cell adds its windows one by one
//     channels   channels-last: a vector holds channels of one cell, so the row itself is a line
//
// In channels-last order with few channels, a vector holds several cells with all their channels. Then a row has
// `each` elements per cell, where `each` is the number of channels, and lines are shifted, phased or spread by whole cells.
//
// If all rows of windows of a plane fit the cache (`resident`), they are divided together, and the list of
// rows that each row of cells adds is made once for all planes. Otherwise the rows share a ring of slots.

#pragma once

#include "../simd/pick.h"
#include "../simd/sink.h"
#include "quotients.h"

namespace pooltide {
namespace {

enum class Lines { sliding, shifted, phased, picked, spread, single, channels };

// Sizes are in elements. A slot holds one divided row of windows, arranged in lines.
template <class S> struct LineLayout {
  using T = typename Sum<S>::T;
  static constexpr int64_t V = lanes<S>, kCachedBytes = 64 << 10, kLists = 4096, kFewChannels = 2 * V;
  Lines lines;
  bool resident;       // a slot for each row of windows of a plane
  bool dense = false;  // resident, without padding between the slots
  int64_t back = 0;    // zeros before the first quotient of a slot
  int64_t offset = 0;  // of a slot's first element, so that its quotients are aligned
  int64_t each;        // elements of a cell: its channels in channels-last order, else 1
  int64_t row, width;  // elements of a row of cells; the same, rounded up to whole vectors
  int64_t windows;     // elements of a row of windows
  int64_t slot, slots_d, slots_h;   // the size of a slot; the number of slots along d and h
  int64_t divided_rows, quotients;  // rows that are divided together; room for their quotients
  int64_t strip_rows, stage, lists; // rows of the result written together; their stage; entries of the lists

  LineLayout(const Problem& p, Lines chosen, bool tight) : lines(chosen) {
    each = p.channels_last ? p.channels : 1;
    row = p.w.cells * each, width = round_up(row, V), windows = p.w.windows * each;
    divided_rows = larger(1, smaller(p.h.windows, 2048 / (windows + 1)));
    quotients = lines == Lines::channels ? 0 : divided_rows * windows + p.w.most + 2 * V;
    slots_d = larger(p.d.most, 1);
    slots_h = larger(p.h.most, 1);
    measure_slot(p);
    stage = Sink<S>::stage_size(lines == Lines::channels ? each : row, tight ? 0 : 16384);
    strip_rows = lines == Lines::channels ? 1 : larger(1, Sink<S>::most(stage) / larger(row, 1));
    lists = p.d.pairs * (p.h.pairs + p.h.cells) + 2;
    dense = lines == Lines::picked || (lines == Lines::phased && each == 1 && p.w.phase == Phase::alike && p.w.cells <= 2 * p.w.windows);
    const int64_t kept = p.d.windows * p.h.windows * (dense ? p.w.windows : slot) * item();
    resident = !tight && lines != Lines::channels && lists <= kLists && kept <= kCachedBytes;
    dense = dense && resident;
    if (resident) {
      slots_d = larger(p.d.windows, 1), slots_h = larger(p.h.windows, 1);
      if (dense) slot = p.w.windows, offset = 0;
    } else {
      int64_t fit = tight ? 0 : kCachedBytes / 4 / (slots_d * slot * item());
      slots_h = smaller(larger(p.h.windows, 1), larger(slots_h, fit));
      lists = (strip_rows + 2) * larger(1, p.d.most * p.h.most);
    }
  }

  void measure_slot(const Problem& p) {
    switch (lines) {
      case Lines::channels: slot = windows + V; break;
      case Lines::sliding:
      case Lines::shifted:
        back = p.w.back * each, offset = round_up(back, V) - back;
        slot = offset + larger(width + p.w.most * each, back + windows) + V;
        break;
      case Lines::phased:
        back = p.w.back * each, offset = round_up(back, V) - back;
        if (each == 1 && p.w.phase != Phase::wide) slot = offset + larger(round_up(row, 2 * V) / 2 + 2, back + windows + V) + V;
        else slot = offset + larger(round_up(row + each, 2 * V) / 2 + (2 * p.w.most + 2) * each, back + windows + V) + 2 * V;
        break;
      case Lines::picked: slot = p.w.windows + p.w.most + 2 * V; break;
      case Lines::spread: slot = spread_line(p) + (each > 1 ? V : 0); break;
      case Lines::single: slot = p.w.windows + V; break;
    }
    slot = round_up(slot, V);
  }

  static int64_t spread_line(const Problem& p) {
    return larger(p.w.most, 1) * round_up(p.w.cells * (p.channels_last ? p.channels : 1), V);
  }
  static constexpr int64_t item() { return sizeof(T); }
  int64_t slots() const { return slots_d * slots_h; }
  bool padded() const {
    return !dense && (lines == Lines::shifted || lines == Lines::sliding || lines == Lines::phased);
  }

  // Returns why this layout can't hold the problem or, unless `ignore_speed` is set, why another one is
  // faster. Returns null if neither is the case.
  static const char* refuse(const Problem& p, Lines lines, bool ignore_speed) {
    if (!p.w.first) return "the row is too long for a table per cell";
    if (!p.channels_last && lines == Lines::channels) return "the arrays are not channels-last";
    if (p.channels_last && lines != Lines::channels) {
      if (lines != Lines::shifted && lines != Lines::phased && lines != Lines::spread) return "the arrays are channels-last";
      if (p.channels >= kFewChannels && !ignore_speed) return "the channels of a cell fill vectors";
      if (p.w.cells * p.channels > kLongRow && !ignore_speed) return "the row is long";
    }
    switch (lines) {
      case Lines::channels:
      case Lines::single: return nullptr;
      case Lines::sliding:
        if (p.d.cells > 1 || p.d.windows > 1) return "the planes have depth";
        if (!p.h.shifted || !p.w.shifted || p.h.most != 3 || p.w.most != 3) return "the windows are not 3 × 3 with stride 1";
        return p.h.groups < p.h.cells ? "some rows of cells share all their windows" : nullptr;
      case Lines::shifted: return p.w.shifted ? nullptr : "the stride along the row is not 1, or a cell would add mostly zeros";
      case Lines::phased:
        if (p.w.phase == Phase::none) return "the stride along the row is not 2, or a cell would add mostly zeros";
        return p.w.cells <= V && !refuse(p, Lines::picked, ignore_speed) && !ignore_speed ? "a row fits one vector" : nullptr;
      case Lines::picked:
        if (!Pick<T>::fast && !ignore_speed) return "this instruction set permutes slowly";
        if (!p.w.unit_steps) return "neighbouring cells skip a window";
        return p.w.most <= 3 ? nullptr : "a cell is in more than 3 windows of a row";
      case Lines::spread: {
        bool fits = larger(p.d.most, 1) * larger(p.h.most, 1) * spread_line(p) * item() <= (1 << 19);
        return ignore_speed || p.w.most <= 1 || fits ? nullptr : "the lines outgrow the cache";
      }
    }
    return nullptr;
  }
};

// Writes the lines of one row of windows; each has `width` cells, padding included.
template <class T> void spread_lines(const Axis& w, const T* from, T* lines, int64_t width) {
  const int32_t *first = w.first, *count = w.count;
  int32_t most = (int32_t)w.most;
  for (int32_t j = 0; j < most; j++, lines += width)
    if (w.unit_steps) {
      for (int64_t i = 0; i < width; i += Lanes<T>::n)
        store(lines + i, Pick<T>(first + i, count + i)(from, j));
    } else {
      for (int64_t i = 0; i < width; i++) lines[i] = j < count[i] ? from[first[i] + j] : 0;
    }
}

// The same for cells of `each` channels. Writes whole vectors, which the next cell, or the next line, overwrites.
template <class T> void spread_cells(const Axis& w, const T* from, T* lines, int64_t width, int64_t each) {
  for (int32_t j = 0; j < w.most; j++, lines += width)
    for (int64_t i = 0; i < w.cells; i++) {
      const T* q = from + (w.first[i] + j) * each;
      for (int64_t c = 0; c < each; c += Lanes<T>::n)
        store(lines + i * each + c, j < w.count[i] ? load(q + c) : typename Lanes<T>::V{});
    }
}

}  // namespace
}  // namespace pooltide
