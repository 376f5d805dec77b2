// A problem made ready to run: tables owned, scratch and splitting known.

#pragma once

#include <cstddef>
#include <vector>

#include "problem.h"

namespace pooltide {

// One axis as Python hands it over: first and count per cell, per window the divisor; or, of an
// indexed problem, the first cell. One whose cells count no windows can't be gathered.
struct AxisTables {
  const int64_t *first, *count, *divisor;
  int64_t cells, windows;
};

class Prepared {
 public:
  // `facts` has all but the axes, and `whole`.
  Prepared(const Problem& facts, const AxisTables& d, const AxisTables& h, const AxisTables& w);
  Prepared(const Prepared&) = delete;

  // A call that moves `stream_from` bytes or more writes past the cache. Throws std::bad_alloc when
  // there is no memory for scratch.
  Fault run(Arrays arrays, int threads, int64_t stream_from = 32 << 20) const;

  // Whether a call begins with a gather; an index outside its window makes it scatter after all.
  bool gathers() const;

  const Problem& problem() const { return problem_; }

 private:
  void adopt(int axis, const AxisTables& tables, Axis& to);
  void adopt_windows(int axis, const AxisTables& tables, Axis& to);
  double cover() const;
  Fault run_once(const Arrays& arrays, const Kernels& kernels, int threads, int64_t bytes) const;

  Problem problem_;
  std::vector<int32_t> cells_[3][4];
  std::vector<double> divisors_[3];
  std::vector<int32_t> starts_[3], extents_[3];
  std::vector<int64_t> jump_;
};

// Instruction sets that this machine has, best last; `use` takes one of their names.
std::vector<const Kernels*> instruction_sets();
bool use_instruction_set(const char* name);
const char* instruction_set();

// Memory of the calling thread for the threads of one call, kept for its next one unless large.
void* thread_scratch(size_t bytes);
void trim_thread_scratch();

}  // namespace pooltide
