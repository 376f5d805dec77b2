#include "prepared.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "pool.h"

namespace pooltide {
namespace {

constexpr int64_t kChunkBytes = 128 << 10;  // of result: what a thread takes at a time
constexpr int64_t kThreadBytes = 512 << 10;  // of result: what makes one more thread worth waking

constexpr int64_t kHeldImage = 8 << 20;  // bytes of a result that is still in the cache when it is added to

std::atomic<const Kernels*> chosen{nullptr};

const Kernels& kernels() {
  const Kernels* k = chosen.load(std::memory_order_acquire);
  if (!k) chosen.store(k = instruction_sets().back(), std::memory_order_release);
  return *k;
}

// Scratch of all threads of a call, kept by the calling thread for its next one.
class Scratch {
 public:
  ~Scratch() { std::free(block_); }
  void* get(size_t bytes) {
    if (bytes <= size_) return block_;
    std::free(block_);
    size_ = 0;
    block_ = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!block_) throw std::bad_alloc();
    size_ = bytes;
    return block_;
  }
  void trim() {
    if (size_ <= size_t{8} << 20) return;
    std::free(block_);
    block_ = nullptr, size_ = 0;
  }

 private:
  void* block_ = nullptr;
  size_t size_ = 0;
};

thread_local Scratch scratch;

// What the threads of one call share.
struct Job {
  const Problem& problem;
  const Arrays& arrays;
  const Kernels& kernels;
  int64_t units, chunk;
  char* scratch;
  int64_t scratch_bytes;
  std::atomic<int64_t> next{0};
  std::mutex merging;
  Fault fault;
};

void work(void* context, int worker) {
  Job& job = *static_cast<Job*>(context);
  Fault mine;
  void* scratch = job.scratch + worker * job.scratch_bytes;
  for (bool first = true;; first = false) {
    int64_t begin = job.next.fetch_add(job.chunk, std::memory_order_relaxed);
    if (begin >= job.units) break;
    int64_t end = std::min(begin + job.chunk, job.units);
    if (first) job.kernels.begin(job.problem, job.arrays, scratch);
    job.kernels.run(job.problem, job.arrays, begin, end, scratch, mine);
  }
  if (mine.count == 0 && !mine.astray) return;
  std::lock_guard<std::mutex> hold(job.merging);
  job.fault.merge(mine);
}

int64_t units_of(const Problem& p, bool gather) {
  if (p.kind == Kind::average && p.whole) return p.planes();
  if (p.kind == Kind::average || gather) return (p.channels_last ? p.batch : p.planes()) * p.d.cells * p.h.cells;
  if (!p.channels_last) return p.planes();
  int64_t block = channel_block(p);
  return p.batch * ((p.channels + block - 1) / block);
}

// Rows are taken by whole planes where planes are small: a plane begun anew divides rows again.
int64_t chunk_of(const Problem& p, int64_t units, int64_t bytes) {
  int64_t chunk = std::max<int64_t>(1, kChunkBytes * units / bytes);
  int64_t plane = p.d.cells * p.h.cells;
  if (p.kind == Kind::average && !p.whole && chunk > plane) chunk -= chunk % plane;
  return chunk;
}

// Whether each pair of cells reads windows i and i+1, or i-1 and i, as the phase says; those outside
// the axis are left out. Behind the last window a row has room for two that are zero.
bool has_phase(const Axis& axis, Phase phase) {
  for (int64_t c = 0; c < axis.cells; c++) {
    int64_t i = c / 2, from = i, to = i + 1;
    if (phase == Phase::wide_odd && c % 2) to++;
    if (phase == Phase::wide_even && c % 2 == 0) from--;
    if (from >= axis.windows + 1 || to > axis.windows + 2) return false;
    from = std::max<int64_t>(from, 0), to = std::min(to, axis.windows);
    if (axis.count[c] != std::max<int64_t>(0, to - from) || (to > from && axis.first[c] != from)) return false;
  }
  return true;
}

Phase phase_of(const Axis& axis) {
  if (axis.cells < 2 || axis.windows < 2) return Phase::none;
  for (Phase phase : {Phase::alike, Phase::wide_odd, Phase::wide_even})
    if (has_phase(axis, phase)) return phase;
  return Phase::none;
}

}  // namespace

Prepared::Prepared(const Problem& facts, const AxisTables& d, const AxisTables& h, const AxisTables& w)
    : problem_(facts) {
  if (facts.jump) jump_.assign(facts.jump, facts.jump + kOffsets), problem_.jump = jump_.data();
  adopt(0, d, problem_.d);
  adopt(1, h, problem_.h);
  adopt(2, w, problem_.w);
  bool one = true, even = true;
  for (const Axis* axis : {&problem_.d, &problem_.h, &problem_.w}) {
    one = one && axis->windows == 1 && axis->cells > 0 && axis->run[0] == axis->cells && axis->count[0] == 1;
    for (int64_t o = 1; o < axis->windows; o++) even = even && axis->divisor[o] == axis->divisor[0];
  }
  problem_.even = even || problem_.quotient == Quotient::constant;
  if (problem_.kind == Kind::indexed && problem_.channels_last) problem_.cover = cover();
  problem_.whole = one && problem_.kind == Kind::average && !problem_.channels_last;
}

void Prepared::adopt(int axis, const AxisTables& tables, Axis& to) {
  int64_t n = tables.cells, padded = n + kMostLanes;
  auto &first = cells_[axis][0], &count = cells_[axis][1], &run = cells_[axis][2], &group = cells_[axis][3];
  first.assign(padded, 0), count.assign(padded, 0), run.assign(padded, 1), group.assign(padded, 0);
  to.cells = n, to.windows = tables.windows, to.gentle = true;
  int64_t back = 0, ahead = 0;
  for (int64_t i = 0; i < n; i++) {
    first[i] = static_cast<int32_t>(tables.first[i]);
    count[i] = static_cast<int32_t>(tables.count[i]);
    to.most = std::max<int64_t>(to.most, count[i]);
    if (i && first[i] - first[i - 1] > 1) to.gentle = false;
    back = std::max(back, i - first[i]);
    ahead = std::max(ahead, first[i] + count[i] - i);
  }
  for (int64_t i = n; n && i < padded; i++) first[i] = first[n - 1];
  for (int64_t i = n - 2; i >= 0; i--)
    if (first[i] == first[i + 1] && count[i] == count[i + 1]) run[i] = run[i + 1] + 1;
  for (int64_t i = 0; i < n; i++) {
    bool begins = i == 0 || run[i - 1] == 1;
    if (begins) to.groups++, to.pairs += count[i];
    group[i] = static_cast<int32_t>(to.groups - 1);
  }
  to.shifted = n > 0 && back + ahead <= n;
  for (int64_t i = 0; i < n && to.shifted; i++) {
    int64_t last = std::min(tables.windows, i + ahead);
    to.shifted = first[i] == std::max<int64_t>(0, i - back) && first[i] + count[i] == last;
  }
  if (to.shifted) to.back = back, to.most = back + ahead;
  divisors_[axis].assign(tables.divisor, tables.divisor + tables.windows);
  if (problem_.kind == Kind::indexed) adopt_windows(axis, tables, to);
  to.first = first.data(), to.count = count.data(), to.run = run.data(), to.group = group.data();
  if (!to.shifted) to.phase = phase_of(to), to.back = to.phase == Phase::wide_even;
  to.divisor = divisors_[axis].data();
}

// A window's extent is how many cells lie in it: each adds one from its first window up to its last.
void Prepared::adopt_windows(int axis, const AxisTables& tables, Axis& to) {
  starts_[axis].assign(tables.divisor, tables.divisor + tables.windows);
  std::vector<int32_t>& extent = extents_[axis];
  extent.assign(tables.windows + 1, 0);
  for (int64_t i = 0; i < to.cells; i++) {
    extent[tables.first[i]] += tables.count[i] > 0;
    extent[tables.first[i] + tables.count[i]] -= tables.count[i] > 0;
  }
  for (int64_t o = 1; o < tables.windows; o++) extent[o] += extent[o - 1];
  to.longest = *std::max_element(extent.begin(), extent.end());
  to.start = starts_[axis].data(), to.extent = extent.data();
}

// None where a window has no cell, and no index that names one of its own.
double Prepared::cover() const {
  double found = 1;
  if (problem_.cells() > INT32_MAX) return 0;
  for (const Axis* axis : {&problem_.d, &problem_.h, &problem_.w}) {
    double held = 0;
    for (int64_t o = 0; o < axis->windows; o++) {
      if (axis->extent[o] == 0) return 0;
      held += axis->extent[o];
    }
    found *= held / double(axis->cells);
  }
  return found;
}

// Where windows overlap much, to add one for each of them costs less than to look through them for each
// cell; so it does where whole images are summed in place and stay in the cache, unless indices are bytes.
bool Prepared::gathers() const {
  const Problem& p = problem_;
  bool held = p.itemsize() >= 4 && p.batch >= 4 && p.cells() * p.channels * p.itemsize() <= kHeldImage;
  return p.cover > 0 && p.cover <= 4 * kernels().lanes && (p.index_bytes == 1 || !held);
}

Fault Prepared::run(Arrays arrays, int threads, int64_t stream_from) const {
  const Problem& p = problem_;
  int64_t bytes = p.planes() * p.cells() * p.itemsize();
  if (bytes == 0) return {};
  int64_t read = p.planes() * p.windows() * (p.itemsize() + p.index_bytes);
  const Kernels& k = kernels();
  arrays.stream = bytes + read >= stream_from;
  arrays.gather = gathers();
  Fault fault = run_once(arrays, k, threads, bytes);
  if (!fault.astray) return fault;
  arrays.gather = false;
  return run_once(arrays, k, threads, bytes);
}

Fault Prepared::run_once(const Arrays& arrays, const Kernels& k, int threads, int64_t bytes) const {
  const Problem& p = problem_;
  int64_t units = units_of(p, arrays.gather), chunk = chunk_of(p, units, bytes);
  int64_t useful = std::min({int64_t{threads}, (units + chunk - 1) / chunk, bytes / kThreadBytes + 1});
  int64_t each = (k.scratch(p, arrays) + 63) / 64 * 64;
  auto* block = static_cast<char*>(scratch.get(each * useful));
  Job job{p, arrays, k, units, chunk, block, each, {}, {}, {}};
  run_on_threads(static_cast<int>(useful), work, &job);
  scratch.trim();
  return job.fault;
}

std::vector<const Kernels*> instruction_sets() {
  std::vector<const Kernels*> found{&kernels_baseline};
#if defined(__x86_64__) && !defined(POOLTIDE_ONLY_BASELINE)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    found.push_back(&kernels_avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      found.push_back(&kernels_avx512);
  }
#endif
  return found;
}

bool use_instruction_set(const char* name) {
  for (const Kernels* k : instruction_sets())
    if (std::strcmp(k->name, name) == 0) {
      chosen.store(k, std::memory_order_release);
      return true;
    }
  return false;
}

const char* instruction_set() { return kernels().name; }

void* thread_scratch(size_t bytes) { return scratch.get(bytes); }
void trim_thread_scratch() { scratch.trim(); }

}  // namespace pooltide
