#include "forward.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "pool.h"
#include "prepared.h"

namespace pooltide {
namespace {

constexpr int64_t kChunkCells = 64 << 10;   // of the input: what a thread takes at a time
constexpr int64_t kThreadCells = 64 << 10;  // of the input: what makes one more thread worth waking

struct Job {
  const Pooling& pooling;
  const PoolingArrays& arrays;
  const ForwardKernels& kernels;
  int64_t units, chunk;
  char* scratch;
  int64_t scratch_bytes;
  std::atomic<int64_t> next{0};
};

// Those of the instruction set in use.
const ForwardKernels& forward_kernels() {
#if defined(__x86_64__) && !defined(POOLTIDE_ONLY_BASELINE)
  const char* name = instruction_set();
  for (const ForwardKernels* k : {&forward_avx512, &forward_avx2})
    if (std::strcmp(k->name, name) == 0) return *k;
#endif
  return forward_baseline;
}

void work(void* context, int worker) {
  Job& job = *static_cast<Job*>(context);
  for (;;) {
    int64_t begin = job.next.fetch_add(job.chunk, std::memory_order_relaxed);
    if (begin >= job.units) break;
    int64_t end = std::min(begin + job.chunk, job.units);
    job.kernels.run(job.pooling, job.arrays, begin, end, job.scratch + worker * job.scratch_bytes);
  }
}

}  // namespace

Forward::Forward(const Pooling& facts, const WindowTables& d, const WindowTables& h, const WindowTables& w)
    : pooling_(facts) {
  adopt(0, d, pooling_.d);
  adopt(1, h, pooling_.h);
  adopt(2, w, pooling_.w);
}

void Forward::adopt(int axis, const WindowTables& tables, WindowAxis& to) {
  auto &first = windows_[axis][0], &count = windows_[axis][1];
  first.assign(tables.first, tables.first + tables.windows);
  count.assign(tables.count, tables.count + tables.windows);
  divisors_[axis].assign(tables.divisor, tables.divisor + tables.windows);
  to.cells = tables.cells, to.windows = tables.windows, to.step = tables.step;
  for (int32_t n : count) to.most = std::max<int64_t>(to.most, n);
  to.first = first.data(), to.count = count.data(), to.divisor = divisors_[axis].data();
  find_even(to);
}

// The run of evenly spaced, equally long windows around the middle one.
void Forward::find_even(WindowAxis& axis) {
  int64_t middle = axis.windows / 2;
  if (middle == 0) return;
  axis.stride = axis.first[middle] - axis.first[middle - 1];
  auto follows = [&](int64_t o) {
    return axis.first[o] - axis.first[o - 1] == axis.stride && axis.count[o] == axis.count[o - 1];
  };
  axis.even_from = axis.even_to = middle;
  while (axis.even_from > 0 && follows(axis.even_from)) axis.even_from--;
  while (axis.even_to < axis.windows && follows(axis.even_to)) axis.even_to++;
}

void Forward::run(const PoolingArrays& arrays, int threads) const {
  const Pooling& p = pooling_;
  if (p.planes() * p.windows() == 0) return;
  const ForwardKernels& k = forward_kernels();
  int64_t units = k.units(p), cells = std::max(p.planes() * p.cells(), p.planes() * p.windows());
  int64_t chunk = std::max<int64_t>(1, kChunkCells * units / cells);
  int64_t useful = std::min({int64_t{threads}, (units + chunk - 1) / chunk, cells / kThreadCells + 1});
  int64_t each = (k.scratch(p) + 63) / 64 * 64;
  auto* block = static_cast<char*>(thread_scratch(each * useful));
  Job job{p, arrays, k, units, chunk, block, each, {}};
  run_on_threads(static_cast<int>(useful), work, &job);
  trim_thread_scratch();
}

}  // namespace pooltide
