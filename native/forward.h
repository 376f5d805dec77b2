// A forward as its kernels read it: planes × three axes, each axis a table of windows.
//
// Window o of an axis holds the cells first[o], first[o] + step, …, count[o] of them; geometry.py is
// the one place that knows which. Tables are owned by a Forward.

#pragma once

#include <vector>

#include "problem.h"

namespace pooltide {

struct WindowAxis {
  int64_t cells = 0, windows = 0, step = 1, most = 0;  // the largest count
  const int32_t* first = nullptr;   // per window
  const int32_t* count = nullptr;   // per window; 0 for one that dilation lets fall between the cells
  const double* divisor = nullptr;  // per window: what it contributes to an average's divisor
  int64_t even_from = 0, even_to = 0;  // windows of one length, `stride` apart: all but those at the edges
  int64_t stride = 0;
};

struct Pooling {
  bool largest = false;  // the maximum of a window, else its average
  bool indexed = false;  // with the maximum's place in the plane
  bool offsets = false;  // that is, in its window, as one byte
  Store store = Store::f32;
  Quotient quotient = Quotient::chained;
  double divisor = 1;  // of a constant quotient
  bool channels_last = false;
  int64_t batch = 0, channels = 0;
  WindowAxis d, h, w;

  int64_t planes() const { return batch * channels; }
  int64_t cells() const { return d.cells * h.cells * w.cells; }
  int64_t windows() const { return d.windows * h.windows * w.windows; }
  int64_t itemsize() const { return store == Store::f64 ? 8 : store == Store::f32 ? 4 : 2; }
  int index_bytes() const { return offsets ? 1 : 8; }

  // The place of cell k of window o, in row (i, j) of that window, which is the plane's `row`, is
  // row_place + first_place + k * place_step.
  int64_t row_place(int64_t row, int64_t i, int64_t j) const {
    return offsets ? (i * h.most + j) * w.most : row * w.cells;
  }
  int64_t first_place(int64_t o) const { return offsets ? 0 : w.first[o]; }
  int64_t place_step() const { return offsets ? 1 : w.step; }
};

struct PoolingArrays {
  const void* input = nullptr;
  void* out = nullptr;
  void* indices = nullptr;  // int64, or uint8 of offsets
};

// The forward kernels of one instruction set. Work is a range of units; units are independent.
struct ForwardKernels {
  const char* name;  // as Kernels has it
  int64_t (*units)(const Pooling&);
  int64_t (*scratch)(const Pooling&);  // bytes that each thread needs
  void (*run)(const Pooling&, const PoolingArrays&, int64_t begin, int64_t end, void* scratch);
};

extern const ForwardKernels forward_baseline, forward_avx2, forward_avx512;

// One axis as Python hands it over.
struct WindowTables {
  const int64_t *first, *count, *divisor;
  int64_t cells, windows, step;
};

class Forward {
 public:
  // `facts` has all but the axes.
  Forward(const Pooling& facts, const WindowTables& d, const WindowTables& h, const WindowTables& w);
  Forward(const Forward&) = delete;

  // Throws std::bad_alloc when there is no memory for scratch.
  void run(const PoolingArrays& arrays, int threads) const;

  const Pooling& pooling() const { return pooling_; }

 private:
  void adopt(int axis, const WindowTables& tables, WindowAxis& to);
  static void find_even(WindowAxis& axis);

  Pooling pooling_;
  std::vector<int32_t> windows_[3][2];
  std::vector<double> divisors_[3];
};

}  // namespace pooltide
