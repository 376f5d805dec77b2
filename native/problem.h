// A problem as the kernels read it: planes × three axes, each axis a table of windows.
//
// An input cell lies in the windows first, first+1, …, first+count-1 of its axis. Tables are made by
// Python (geometry.py is the one place that knows where a window lies) and owned by a Prepared.

#pragma once

#include <cstdint>

namespace pooltide {

enum class Kind : int { average, indexed };
enum class Store : int { f32, f64, f16, bf16 };
enum class Quotient : int { chained, product, constant, mean };  // mean: of a forward only

constexpr int64_t kOffsets = 256;   // that a byte can tell
constexpr int64_t kMostLanes = 16;  // tables are padded so that a whole vector may be read

struct Axis {
  int64_t cells = 0, windows = 0;
  const int32_t* first = nullptr;   // per cell
  const int32_t* count = nullptr;   // per cell; 0 in the padding
  const int32_t* run = nullptr;     // per cell: how many cells from here on have the same windows
  const double* divisor = nullptr;  // per window: its length, an integer
  const int32_t* start = nullptr;   // per window: its first cell; where indices are offsets
  int64_t most = 0;                 // the largest count
  int64_t back = 0;                 // of a shifted axis: cell w reads windows w-back … w-back+most-1
  bool gentle = false;              // `first` grows by at most 1 per cell
  bool shifted = false;             // stride 1: the windows of a cell are a shift of its neighbour's
};

struct Problem {
  Kind kind = Kind::average;
  Store store = Store::f32;
  Quotient quotient = Quotient::chained;
  double divisor = 1;  // of a constant quotient
  bool channels_last = false;
  bool whole = false;    // an average with one window that holds the plane
  bool even = false;     // all windows of an average have the same divisors
  int index_bytes = 0;   // of an indexed problem: 4 or 8; 1 where they are offsets in their windows
  const int64_t* jump = nullptr;  // 256: how far an offset lies from its window's first cell
  int64_t batch = 0, channels = 0;
  Axis d, h, w;

  int64_t planes() const { return batch * channels; }
  int64_t cells() const { return d.cells * h.cells * w.cells; }
  int64_t windows() const { return d.windows * h.windows * w.windows; }
  int64_t itemsize() const { return store == Store::f64 ? 8 : store == Store::f32 ? 4 : 2; }
};

struct Arrays {
  const void* grad = nullptr;
  const void* indices = nullptr;
  void* out = nullptr;
  bool stream = false;  // the result outgrows the cache: write past it
};

// Indices outside the plane: how many, and the first in (N, C, D, H, W) order.
struct Fault {
  int64_t count = 0, position = 0, value = 0;

  void add(int64_t at, int64_t what) {
    if (count++ == 0 || at < position) position = at, value = what;
  }
  void merge(const Fault& other) {
    if (other.count == 0) return;
    if (count == 0 || other.position < position) position = other.position, value = other.value;
    count += other.count;
  }
};

// How an indexed problem in channels-last order is cut: this many channels at a time, so that
// their sums stay in the cache.
inline int64_t channel_block(const Problem& p) {
  int64_t block = (int64_t{1} << 18) / (p.cells() * 4 + 1);
  if (block > kMostLanes) block -= block % kMostLanes;
  if (block < 1) block = 1;
  return block < p.channels ? block : (p.channels ? p.channels : 1);
}

// The kernels of one instruction set. Work is a range of units; units are independent.
//   average   a row of the result (D and H flattened); a plane where one window holds it all
//   indexed   a plane; in channels-last order a block of channels of one image
struct Kernels {
  const char* name;
  int64_t (*scratch)(const Problem&);  // bytes that each thread needs
  void (*run)(const Problem&, const Arrays&, int64_t begin, int64_t end, void* scratch, Fault&);
};

extern const Kernels kernels_baseline, kernels_avx2, kernels_avx512;

}  // namespace pooltide
