// A problem as the kernels read it: planes × three axes, each axis a table of windows.
//
// Four kinds, with q a window and c a cell of a plane:
//
//     average            out[q] = sum of the cells of q / divisor of q
//     maximum            out[q] = largest cell of q, indices[q] = where it is
//     average_gradient   out[c] = sum over the windows q that hold c of grad[q] / divisor of q
//     maximum_gradient   out[indices[q]] += grad[q]
//
// Python hands over, per axis and window, the first cell, the number of cells and the divisor
// (geometry.py is the only place that computes them). All other tables are derived from these by
// PreparedProblem, which owns them.

#pragma once

#include <cstdint>

namespace pooltide {

enum class Kind : int { average, maximum, average_gradient, maximum_gradient };
enum class Store : int { f32, f64, f16, bf16 };
enum class Quotient : int { chained, product, constant, mean };  // mean: of a forward only

// Patterns of stride 2, for the cells 2i and 2i+1. Windows outside the axis are ignored.
//     alike       both cells are in window i only
//     wide_odd    cell 2i is in window i, cell 2i+1 in the windows i and i+1
//     wide_even   cell 2i is in the windows i-1 and i, cell 2i+1 in window i
//     wide        cell 2i+n is in the windows i - behind[n], …, i + ahead[n] - 1
enum class Phase : int { none, alike, wide_odd, wide_even, wide };

constexpr int64_t kLongRow = 1 << 20;  // longer rows get no table per cell
constexpr int64_t kOffsets = 256;   // values of a one-byte offset
constexpr int64_t kMostLanes = 16;  // tables per cell are padded so that a whole vector can be read

struct Axis {
  int64_t cells = 0, windows = 0, dilation = 1;
  // Per window.
  const int32_t* start = nullptr;    // its first cell inside the axis
  const int32_t* length = nullptr;   // its number of cells inside the axis, `dilation` apart
  const int32_t* divisor = nullptr;  // its factor of an average's divisor
  int64_t longest = 0;               // the largest length
  int64_t regular_from = 0, regular_to = 0, stride = 0;  // windows of one length, `stride` cells apart
  bool disjoint = false;             // no two windows overlap, and each has a cell
  // Per cell, of gradients that gather: the windows first, …, first + count - 1 hold the cell.
  const int32_t* first = nullptr;
  const int32_t* count = nullptr;    // 0 in the padding of the table
  int64_t most = 0;                  // the largest count
  bool unit_steps = false;           // `first` grows by at most 1 per cell
  bool shifted = false;              // stride 1: the windows of a cell are those of its neighbour, plus 1
  Phase phase = Phase::none;
  int64_t back = 0;                  // shifted: cell i reads windows i-back, …, i-back+most-1; else: the largest of `behind`
  int64_t behind[2] = {}, ahead[2] = {};  // of a phase: cell 2i+n is in the windows i - behind[n], …, i + ahead[n] - 1
  // Per cell, of the axes d and h only.
  const int32_t* run = nullptr;      // how many cells from here on have the same windows
  const int32_t* group = nullptr;    // how many runs begin before the cell's run
  int64_t groups = 0, pairs = 0;     // the number of runs; the sum of their counts
};

struct Problem {
  Kind kind = Kind::average;
  Store store = Store::f32;
  Quotient quotient = Quotient::chained;
  double divisor = 1;  // of a constant quotient
  bool channels_last = false;
  int index_bytes = 0;  // 0: no indices; 1: offsets inside the window; 4 or 8: flat inside the plane
  int64_t batch = 0, channels = 0;
  Axis d, h, w;
  // Derived.
  bool same_divisor = false;      // all windows have the same divisor
  const int64_t* jump = nullptr;  // kOffsets: how many cells an offset is away from its window's first cell

  bool gradient() const { return kind == Kind::average_gradient || kind == Kind::maximum_gradient; }
  bool average() const { return kind == Kind::average || kind == Kind::average_gradient; }
  int64_t planes() const { return batch * channels; }
  int64_t cells() const { return d.cells * h.cells * w.cells; }
  int64_t windows() const { return d.windows * h.windows * w.windows; }
  int64_t itemsize() const { return store == Store::f64 ? 8 : store == Store::f32 ? 4 : 2; }
  int64_t read_elements() const { return planes() * (gradient() ? windows() : cells()); }
  int64_t written_elements() const { return planes() * (gradient() ? cells() : windows()); }
  int64_t moved_bytes() const {
    return (written_elements() + read_elements()) * itemsize() + planes() * windows() * index_bytes;
  }
};

// The arrays of one call, and how a kernel must write them.
struct Arrays {
  const void* grad = nullptr;   // of a gradient
  const void* input = nullptr;  // of a forward
  void* indices = nullptr;      // read by a gradient, written by a forward
  void* out = nullptr;
  bool stream = false;  // write the result past the cache, because it is larger than the cache
  bool tight = false;   // use the smallest scratch buffers: tests reach the code for large planes on small ones
};

// The indices outside the plane: how many, and the position and value of the first in (N, C, D, H, W) order.
// `retry`: the kernel gave up, for example because an index is far from its window. The result is unusable, and
// PreparedProblem::run repeats the call with a later kernel. `missing`: how many gradients the kernel did not add,
// summed over all units. If `missing` is not 0, the result is unusable, too, and run_kernel sets `retry`.
struct Fault {
  int64_t count = 0, position = 0, value = 0, missing = 0;
  bool retry = false;

  void add(int64_t at, int64_t index) {
    if (count++ == 0 || at < position) position = at, value = index;
  }
  void merge(const Fault& other) {
    retry |= other.retry, missing += other.missing;
    if (other.count == 0) return;
    if (count == 0 || other.position < position) position = other.position, value = other.value;
    count += other.count;
  }
};

// One kernel of one instruction set and storage type. Work is a range of units; units are independent.
struct Kernel {
  const char* name;
  int64_t stream_bytes;  // a gradient that reads and writes at least so many bytes writes its result past the cache
  // Returns why the kernel does not take the problem, or null. With `ignore_speed` it returns only reasons that
  // would make the result wrong, not those that would make it slow.
  const char* (*refuse)(const Problem&, bool ignore_speed);
  int64_t (*units)(const Problem&);
  int64_t (*scratch)(const Problem&, const Arrays&);             // bytes that each thread needs
  void (*begin)(const Problem&, const Arrays&, void* scratch);   // null, or called once before a thread's first run
  void (*run)(const Problem&, const Arrays&, int64_t begin, int64_t end, void* scratch, Fault&);
};

struct KernelList {
  const Kernel* first;
  int count;
};

// Return the kernels of an instruction set for a kind of problem, in the order of preference.
#define POOLTIDE_LISTS(isa) \
  KernelList average_gradients_##isa(Store), maximum_gradients_##isa(Store), forwards_##isa(Store)
POOLTIDE_LISTS(baseline);
POOLTIDE_LISTS(avx2);
POOLTIDE_LISTS(avx512);
#undef POOLTIDE_LISTS

}  // namespace pooltide
