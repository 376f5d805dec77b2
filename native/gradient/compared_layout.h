// Which windows scatter_compared.h compares with each other, and the rows of windows that it takes together.

#pragma once

#include "scatter_layout.h"

namespace pooltide {
namespace {

// How many windows before a window overlap this window, at most and in the mean.
struct Reach {
  int64_t most = 0;
  double mean = 0;
};
inline Reach reach_of(const Axis& axis) {
  Reach reach;
  for (int64_t o = 0, first = 0; o < axis.windows; o++) {
    while (end_of(axis, first) <= axis.start[o]) first++;
    reach.most = larger(reach.most, o - first), reach.mean += double(o - first);
  }
  reach.mean /= double(larger(axis.windows, 1));
  return reach;
}

// The windows that a window is compared with.
struct Compared {
  static constexpr int64_t kSpan = 1 << 22;  // cells: divisions in float32 are exact
  static constexpr int64_t kSlotBytes = 512 << 10;
  static constexpr int64_t kJoinedWindows = 256, kJoinedCells = 1 << 24;  // of a plane; of all planes of a row

  Reach reach_d, reach_h, reach_w;
  int64_t d, h, w;  // how many windows before a window overlap it, at most, along each axis
  int64_t channels, windows;  // of a row of windows; a long row of a plane of one row is taken in pieces
  int64_t before, slot, slots;  // elements before a slot and of a whole slot; their number
  bool joined;  // a row has the windows of several planes
  bool copied;  // no comparison is needed, and rows are too short for vectors of channels

  Compared(const Problem& p, bool tight)
      : reach_d(reach_of(p.d)), reach_h(reach_of(p.h)), reach_w(reach_of(p.w)), d(reach_d.most), h(reach_h.most), w(reach_w.most), channels(p.channels_last ? p.channels : 1) {
    int64_t piece = larger(larger(w, 1), (tight ? 24 : 1024) / larger(channels, 1));
    windows = &slow_axis(p) == &p.w ? smaller(p.w.windows, piece) : p.w.windows;
    copied = d + h + w == 0 && channels == 1;
    const int64_t of_plane = p.windows();
    joined = !copied && !p.channels_last && p.planes() > 0 && of_plane > 0 && of_plane <= kJoinedWindows && p.cells() <= kJoinedCells &&
             ScatterLayout::units(p, Method::compared) == p.planes();
    if (joined) windows = of_plane * larger(1, smaller(p.planes(), smaller(piece / of_plane, kJoinedCells / p.cells())));
    const int64_t back = joined ? of_plane : w;
    before = round_up(back * channels, kMostLanes);
    slot = round_up(before + (windows + back) * channels + 4 * kMostLanes, kMostLanes);
    slots = joined ? 1 : d ? (d + 1) * p.h.windows : h + 1;
  }
  int64_t pairs() const { return (d * (2 * h + 1) + h) * (2 * w + 1) + w; }
  double mean_pairs() const {
    if (joined) return double(pairs());
    return (reach_d.mean * (2 * reach_h.mean + 1) + reach_h.mean) * double(2 * w + 1) + double(w);
  }

  // Lists the distances in a joined row at which two windows may overlap, the largest first. Returns how many these are.
  int64_t list_distances(const Problem& p, int64_t* to) const {
    int64_t n = 0;
    for (int64_t i = d; i >= 0; i--)
      for (int64_t j = h; j >= -h; j--)
        for (int64_t k = w; k >= -w; k--) {
          int64_t distance = (i * p.h.windows + j) * p.w.windows + k, at = n;
          if (distance <= 0 || distance >= p.windows()) continue;
          while (at > 0 && to[at - 1] < distance) at--;
          if (at > 0 && to[at - 1] == distance) continue;
          for (int64_t m = n++; m > at; m--) to[m] = to[m - 1];
          to[at] = distance;
        }
    return n;
  }

  // Returns why the comparisons are impossible, or null.
  static const char* refuse(const Problem& p) {
    const Axis &d = p.d, &h = p.h, &w = p.w;
    const Axis* axes[] = {&d, &h, &w};
    for (const Axis* axis : axes)
      if (const char* reason = refuse_axis(*axis)) return reason;
    int64_t span = (length(d) - 1) * h.cells * w.cells + length(h) * w.cells;
    return span < kSpan ? nullptr : "a window spans 2**22 cells or more";
  }

 private:
  static int64_t length(const Axis& axis) { return (axis.longest - 1) * axis.dilation + 1; }
};

}  // namespace
}  // namespace pooltide
