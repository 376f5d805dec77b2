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

// Stride 2, where cells 2i and 2i+1 lie in one or two of two neighbouring windows: each in one and the
// same, the odd ones in both, or the even ones in both.
enum class Phase : int { none, alike, wide_odd, wide_even };

constexpr int64_t kOffsets = 256;   // that a byte can tell
constexpr int64_t kMostLanes = 16;  // tables are padded so that a whole vector may be read

struct Axis {
  int64_t cells = 0, windows = 0;
  const int32_t* first = nullptr;   // per cell
  const int32_t* count = nullptr;   // per cell; 0 in the padding
  const int32_t* run = nullptr;     // per cell: how many cells from here on have the same windows
  const int32_t* group = nullptr;   // per cell: how many runs begin before its own
  const double* divisor = nullptr;  // per window: its length, an integer
  const int32_t* start = nullptr;   // per window: its first cell; of an indexed problem
  const int32_t* extent = nullptr;  // per window: its cells; the same
  int64_t longest = 0;              // the largest extent
  int64_t most = 0;                 // the largest count
  int64_t groups = 0, pairs = 0;    // runs; the sum of their counts
  int64_t back = 0;                 // of a shifted axis: cell w reads windows w-back … w-back+most-1
  bool gentle = false;              // `first` grows by at most 1 per cell
  bool shifted = false;             // stride 1: the windows of a cell are a shift of its neighbour's
  Phase phase = Phase::none;        // `back` is then 1 where even cells are the wide ones
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
  double cover = 0;      // windows that hold a cell, on average; 0 where an indexed problem can't be gathered
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
  bool gather = false;  // an indexed problem: cells look for themselves in their windows
};

// Indices outside the plane: how many, and the first in (N, C, D, H, W) order; or, of a gather, whether
// one lies outside its own window.
struct Fault {
  int64_t count = 0, position = 0, value = 0;
  bool astray = false;

  void add(int64_t at, int64_t what) {
    if (count++ == 0 || at < position) position = at, value = what;
  }
  void merge(const Fault& other) {
    astray |= other.astray;
    if (other.count == 0) return;
    if (count == 0 || other.position < position) position = other.position, value = other.value;
    count += other.count;
  }
};

// The channels that are scattered at a time in channels-last order: half types are summed apart, in the cache.
inline int64_t channel_block(const Problem& p) {
  int64_t block = p.itemsize() == 2 ? (int64_t{1} << 16) / (p.cells() + 1) : p.channels / (p.batch < 4 ? 4 : 1);
  if (block >= kMostLanes) block -= block % kMostLanes;
  else block = p.itemsize() == 2 ? (block > 1 ? block : 1) : kMostLanes;
  return block < p.channels ? block : (p.channels ? p.channels : 1);
}

// The kernels of one instruction set. Work is a range of units; units are independent.
//   average   a row of the result (D and H flattened); a plane where one window holds it all
//   indexed   a plane; in channels-last order a row of the result, or a block of channels of one image
struct Kernels {
  const char* name;
  int lanes;  // float32 in a vector
  int64_t (*scratch)(const Problem&, const Arrays&);  // bytes that each thread needs
  void (*begin)(const Problem&, const Arrays&, void* scratch);  // before a thread's first run of a call
  void (*run)(const Problem&, const Arrays&, int64_t begin, int64_t end, void* scratch, Fault&);
};

extern const Kernels kernels_baseline, kernels_avx2, kernels_avx512;

}  // namespace pooltide
