// A problem made ready to run: its tables derived, its kernel chosen.
//
// Python makes one for each problem and layout, and keeps it. `run` takes the addresses of the arrays, writes the
// result, and returns the first bad index, if any. Tests read the list of kernels, and can force one.

#pragma once

#include <cstddef>
#include <vector>

#include "problem.h"
#include "regions/regions.h"
#include "threads/interruption.h"

namespace pooltide {

// Choices that a test may force; with the defaults nothing is forced.
struct Forced {
  const Kernel* kernel = nullptr;
  int stream = -1;        // 0: ordinary stores; 1: non-temporal stores, which bypass the cache; -1: not forced
  int64_t chunk = 0;      // units that a thread takes at a time
  bool tight = false;     // use the smallest scratch buffers, as if the plane were large
};

class PreparedProblem {
 public:
  // `facts` is a problem without the derived fields. The caller keeps its tables per window alive.
  explicit PreparedProblem(const Problem& facts);
  PreparedProblem(const PreparedProblem&) = delete;

  // Computes. Throws std::bad_alloc when there is no memory for scratch buffers. After an interruption the contents of
  // the result are unspecified.
  Fault run(Arrays arrays, int threads, const Forced& forced = {}, Interruption* interruption = nullptr) const;
  bool takes_long() const { return work_ > kLongWork; }

  // The kernels of the instruction set in use, in order, and the first that does not refuse.
  KernelList kernels() const;
  const Kernel& chosen() const;

  const Problem& problem() const { return problem_; }

  // The bytes of the derived tables.
  int64_t table_bytes() const;

 private:
  void move_unit_axes();
  void derive_windows(Axis& axis) const;
  void derive_cells(int axis, Axis& to);
  void derive_jump();
  Fault run_kernel(const Kernel& kernel, const Arrays& arrays, int threads, int64_t chunk, Interruption* interruption) const;

  Problem problem_;
  double work_;  // as in interruption.h
  std::vector<int32_t> cells_[3][4];
  std::vector<int64_t> jump_;
  std::vector<const Kernel*> chosen_;  // per instruction set
};

// Fills the fields of an axis that follow from its tables per cell, which have room for kMostLanes more.
void describe_cells(Axis& axis);

struct InstructionSet {
  const char* name;
  KernelList (*average_gradients)(Store);
  KernelList (*maximum_gradients)(Store);
  KernelList (*forwards)(Store);
  RegionKernel (*regions)(Store);

  // Returns the kernels for problems of this kind and storage type.
  KernelList kernels(const Problem& p) const {
    return (p.kind == Kind::average_gradient ? average_gradients : p.kind == Kind::maximum_gradient ? maximum_gradients : forwards)(p.store);
  }
};

// A list without a destructor: kernels may run while the process ends.
struct InstructionSets {
  const InstructionSet* first[3];
  size_t count;

  const InstructionSet* const* begin() const { return first; }
  const InstructionSet* const* end() const { return first + count; }
  size_t size() const { return count; }
  const InstructionSet* operator[](size_t i) const { return first[i]; }
};

// The instruction sets of this machine, the best last. `use_instruction_set` takes one of their names; it
// returns false for any other.
const InstructionSets& instruction_sets();
bool use_instruction_set(const char* name);
const InstructionSet& current_set();
const char* instruction_set();

}  // namespace pooltide
