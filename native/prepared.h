// A problem made ready to run: tables owned, scratch and splitting known.

#pragma once

#include <cstddef>
#include <vector>

#include "problem.h"

namespace pooltide {

// One axis as Python hands it over: first and count per cell, per window the divisor; or, where indices
// are offsets in windows, the first cell.
struct AxisTables {
  const int64_t *first, *count, *divisor;
  int64_t cells, windows;
};

class Prepared {
 public:
  // `facts` has all but the axes, and `whole`.
  Prepared(const Problem& facts, const AxisTables& d, const AxisTables& h, const AxisTables& w);
  Prepared(const Prepared&) = delete;

  // Results of `stream_from` bytes and more are written past the cache. Throws std::bad_alloc when
  // there is no memory for scratch.
  Fault run(Arrays arrays, int threads, int64_t stream_from = 32 << 20) const;

  const Problem& problem() const { return problem_; }

 private:
  void adopt(int axis, const AxisTables& tables, Axis& to);

  Problem problem_;
  std::vector<int32_t> cells_[3][3];
  std::vector<double> divisors_[3];
  std::vector<int32_t> starts_[3];
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
