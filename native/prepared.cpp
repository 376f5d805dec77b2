// Prepares and runs a problem.
//
// The constructor derives the tables that kernels read and chooses the first kernel that does not refuse. `run`
// divides the units of the kernel among threads, and returns the first bad index, if any. A kernel may give up,
// for example because an index is far from its window; then `run` computes the call again with a later kernel.

#include "prepared.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "threads/run_units.h"

namespace pooltide {
namespace {

// How work is divided among threads. A forward does more work per byte than a gradient.
constexpr int64_t kChunkBytes = 128 << 10;  // of a gradient's result
constexpr int64_t kThreadBytes = 768 << 10;  // per thread: bytes that a gradient reads and writes
constexpr int64_t kTeamBytes = 256 << 10;    // the same for threads of an OpenMP team, which need not be woken
constexpr int64_t kChunkCells = 64 << 10, kThreadCells = 64 << 10;    // elements of a forward's larger array
constexpr int64_t kChunksPerThread = 8;     // so that threads end together
constexpr int64_t kChunksOfImages = 2;      // per thread, if a chunk is a part of an image: edges are read twice

std::atomic<size_t> chosen_set{SIZE_MAX};

size_t current() {
  size_t at = chosen_set.load(std::memory_order_acquire);
  return at == SIZE_MAX ? instruction_sets().size() - 1 : at;
}

// The buffer that a thread keeps for its next call is the value of a key. A thread_local object would be destroyed
// before a program's last calls, for example from a destructor of a global object, and ends the process where there is
// no memory for it.
struct Buffer {
  size_t size;
  alignas(64) char bytes[64];  // and more, up to `size`
};
pthread_key_t kept;
const bool can_keep = pthread_key_create(&kept, std::free) == 0;

// The scratch buffers of all threads of a call. The calling thread keeps them for its next call, unless large, or the
// call may be interrupted: then a handler may make another call on the same thread.
class Scratch {
 public:
  Scratch(size_t bytes, bool may_keep) {
    may_keep = may_keep && can_keep;
    buffer_ = may_keep ? static_cast<Buffer*>(pthread_getspecific(kept)) : nullptr;
    if (buffer_ && bytes <= buffer_->size) return;
    if (buffer_) pthread_setspecific(kept, nullptr);
    std::free(buffer_);
    buffer_ = static_cast<Buffer*>(std::aligned_alloc(64, sizeof(Buffer) + (bytes + 63) / 64 * 64));
    if (!buffer_) throw std::bad_alloc();
    buffer_->size = bytes;
    is_kept_ = may_keep && bytes <= kMostKept && pthread_setspecific(kept, buffer_) == 0;
  }
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    if (!is_kept_) std::free(buffer_);
  }
  char* bytes() const { return buffer_->bytes; }

 private:
  static constexpr size_t kMostKept = size_t{8} << 20;

  Buffer* buffer_;
  bool is_kept_ = true;
};

// How many units a thread takes at a time, and how many threads are useful. Chunks of a gradient are whole
// images if images are small: a thread that begins inside an image reads some rows of windows again. Chunks of a long
// call are small enough to end it early.
struct Parts {
  int64_t chunk, threads;

  // A negative `most_threads` means that the threads are those of an OpenMP team.
  Parts(const Problem& p, double work, int64_t units, int64_t most_threads, int64_t forced_chunk) {
    int64_t bytes_per_thread = most_threads < 0 ? kTeamBytes : kThreadBytes;
    most_threads = std::abs(most_threads);
    int64_t images = p.channels_last ? p.batch : p.planes();
    int64_t rows = p.gradient() && units % images == 0 ? units / images : 1;  // units that are best taken together
    bool inside = false;  // chunks are parts of images
    if (p.gradient()) {
      int64_t bytes = p.written_elements() * p.itemsize();
      chunk = std::max<int64_t>(1, kChunkBytes * units / bytes);
      if (chunk > rows) chunk -= chunk % rows;
      inside = chunk < units / images;
      threads = p.moved_bytes() / bytes_per_thread + 1;
    } else {
      int64_t cells = p.planes() * std::max(p.cells(), p.windows());
      chunk = std::max<int64_t>(1, kChunkCells * units / cells);
      threads = cells / kThreadCells + 1;
    }
    threads = std::min({threads, most_threads, (units + chunk - 1) / chunk});
    int64_t each = kChunksPerThread;
    if (inside) each = images % threads ? kChunksOfImages : 1;
    chunk = std::max(chunk, threads == 1 ? units : units / (threads * each));
    if (work > kLongWork) {
      int64_t most = std::max<int64_t>(1, static_cast<int64_t>(units * (kLongWork / work)));
      chunk = std::min(chunk, most > rows ? most - most % rows : most);
    }
    if (forced_chunk) chunk = forced_chunk, threads = std::min(most_threads, (units + chunk - 1) / chunk);
  }
};

// Returns whether all cells of the axis are in the windows that `behind` and `ahead` say. Windows outside the axis are
// ignored, because kernels read zeros there.
bool follows_phase(const Axis& axis) {
  for (int64_t c = 0; c < axis.cells; c++) {
    int64_t from = std::max<int64_t>(0, c / 2 - axis.behind[c % 2]), to = std::min(axis.windows, c / 2 + axis.ahead[c % 2]);
    if (axis.count[c] != std::max<int64_t>(0, to - from) || (to > from && axis.first[c] != from)) return false;
  }
  return true;
}

// Finds the phase of an axis whose cells have tables. A cell would add behind + ahead quotients; most of them are zeros
// if long windows are few.
void find_phase(Axis& axis) {
  axis.phase = Phase::none;
  if (axis.cells < 2 || axis.windows < 2 || axis.cells > 2 * (axis.windows + axis.most)) return;
  axis.behind[1] = 0, axis.ahead[0] = 1;
  constexpr struct { Phase phase; int64_t behind, ahead; } kNarrow[] = {{Phase::alike, 0, 1}, {Phase::wide_odd, 0, 2}, {Phase::wide_even, 1, 1}};
  for (const auto& narrow : kNarrow) {
    axis.behind[0] = axis.back = narrow.behind, axis.ahead[1] = narrow.ahead, axis.phase = narrow.phase;
    if (follows_phase(axis)) return;
  }
  axis.phase = Phase::none;
  for (int n = 0; n < 2; n++) axis.behind[n] = axis.ahead[n] = 0;
  for (int64_t c = 0; c < axis.cells; c++) {
    int64_t i = c / 2, first = axis.first[c];
    if (axis.count[c] == 0) continue;
    axis.behind[c % 2] = std::max(axis.behind[c % 2], i - first);
    axis.ahead[c % 2] = std::max(axis.ahead[c % 2], first + axis.count[c] - i);
  }
  axis.back = std::max(axis.behind[0], axis.behind[1]);
  const bool few_zeros = axis.behind[0] + axis.ahead[0] <= 2 * axis.most && axis.behind[1] + axis.ahead[1] <= 2 * axis.most;
  if (few_zeros && follows_phase(axis)) axis.phase = Phase::wide;
}

// Returns how much work a problem is, at most: a scatter takes a window in one step, others take its cells one by one.
double work_of(const Problem& p) {
  double steps = 1;
  for (const Axis* axis : {&p.d, &p.h, &p.w})
    if (p.kind != Kind::maximum_gradient) steps *= static_cast<double>(std::max<int64_t>(1, axis->longest));
  return static_cast<double>(p.planes()) * std::max(static_cast<double>(p.cells()), steps * static_cast<double>(p.windows()));
}

bool is_unit(const Axis& axis) {
  return axis.start && axis.cells == 1 && axis.windows == 1 && axis.length[0] == 1 && axis.divisor[0] == 1;
}

const Kernel* choose(KernelList list, const Problem& problem) {
  for (int i = 0; i < list.count; i++)
    if (!list.first[i].refuse(problem, false)) return &list.first[i];
  return nullptr;
}

}  // namespace

void describe_cells(Axis& axis) {
  int64_t n = axis.cells, back = 0, ahead = 0;
  axis.most = 0, axis.unit_steps = true;
  for (int64_t i = 0; i < n; i++) {
    axis.most = std::max<int64_t>(axis.most, axis.count[i]);
    if (i && axis.first[i] - axis.first[i - 1] > 1) axis.unit_steps = false;
    back = std::max(back, i - axis.first[i]);
    ahead = std::max(ahead, axis.first[i] + axis.count[i] - i);
  }
  // A cell would add back + ahead quotients; most of them are zeros if long windows are few.
  axis.shifted = n > 0 && back + ahead <= n && back + ahead <= 2 * axis.most;
  for (int64_t i = 0; i < n && axis.shifted; i++) {
    int64_t last = std::min(axis.windows, i + ahead);
    axis.shifted = axis.first[i] == std::max<int64_t>(0, i - back) && axis.first[i] + axis.count[i] == last;
  }
  axis.back = axis.shifted ? back : 0, axis.phase = Phase::none;
  if (!axis.shifted) return find_phase(axis);
  axis.most = back + ahead;
}

PreparedProblem::PreparedProblem(const Problem& facts) : problem_(facts) {
  Problem& p = problem_;
  move_unit_axes();
  Axis* axes[] = {&p.d, &p.h, &p.w};
  p.same_divisor = true;
  for (Axis* axis : axes) {
    derive_windows(*axis);
    for (int64_t o = 1; o < axis->windows && axis->divisor; o++) p.same_divisor = p.same_divisor && axis->divisor[o] == axis->divisor[0];
  }
  p.same_divisor = p.same_divisor || p.quotient == Quotient::constant;
  work_ = work_of(p);
  bool long_row = !p.channels_last && p.d.cells * p.h.cells == 1 && p.d.windows * p.h.windows == 1 &&
                  p.w.cells > kLongRow;
  bool maxima = p.kind == Kind::maximum_gradient && p.channels_last && p.d.start && p.h.start && p.w.start;
  bool gathers = p.kind == Kind::average_gradient || maxima;
  for (int i = 0; i < (long_row ? 2 : 3) && gathers; i++) derive_cells(i, *axes[i]);
  if (p.index_bytes == 1) derive_jump();
  for (const InstructionSet* set : instruction_sets()) chosen_.push_back(choose(set->kernels(p), p));
}

// Moves axes of one cell and one window to the front, so that a row along w has more than one cell.
void PreparedProblem::move_unit_axes() {
  Problem& p = problem_;
  for (int i = 0; i < 2 && is_unit(p.w); i++) {
    Axis unit = p.w;
    p.w = p.h, p.h = p.d, p.d = unit;
  }
  if (is_unit(p.h)) std::swap(p.d, p.h);
}

// An axis has no tables per window if no kernel reads them.
void PreparedProblem::derive_windows(Axis& axis) const {
  if (!axis.start) return;
  axis.longest = 0, axis.disjoint = true;
  for (int64_t o = 0; o < axis.windows; o++) {
    axis.longest = std::max<int64_t>(axis.longest, axis.length[o]);
    int64_t end = o ? axis.start[o - 1] + (axis.length[o - 1] - 1) * axis.dilation + 1 : 0;
    if (axis.start[o] < end || axis.length[o] == 0) axis.disjoint = false;
  }
  int64_t middle = axis.windows / 2;
  if (middle == 0) return;
  axis.stride = axis.start[middle] - axis.start[middle - 1];
  auto follows = [&](int64_t o) {
    return axis.start[o] - axis.start[o - 1] == axis.stride && axis.length[o] == axis.length[o - 1];
  };
  axis.regular_from = axis.regular_to = middle;
  while (axis.regular_from > 0 && follows(axis.regular_from)) axis.regular_from--;
  while (axis.regular_to < axis.windows && follows(axis.regular_to)) axis.regular_to++;
}

// Starts and ends ascend: the windows that hold a cell are those that have begun, minus those that have ended.
void PreparedProblem::derive_cells(int at, Axis& axis) {
  int64_t n = axis.cells, padded = n + kMostLanes, begun = 0, ended = 0;
  auto &first = cells_[at][0], &count = cells_[at][1], &run = cells_[at][2], &group = cells_[at][3];
  first.assign(padded, 0), count.assign(padded, 0);
  for (int64_t i = 0; i < n; i++) {
    while (begun < axis.windows && axis.start[begun] <= i) begun++;
    while (ended < axis.windows && axis.start[ended] + axis.length[ended] <= i) ended++;
    first[i] = static_cast<int32_t>(ended), count[i] = static_cast<int32_t>(std::max<int64_t>(0, begun - ended));
  }
  for (int64_t i = n; n && i < padded; i++) first[i] = first[n - 1];
  axis.first = first.data(), axis.count = count.data();
  describe_cells(axis);
  if (at == 2) return;
  run.assign(padded, 1), group.assign(padded, 0);
  for (int64_t i = n - 2; i >= 0; i--)
    if (first[i] == first[i + 1] && count[i] == count[i + 1]) run[i] = run[i + 1] + 1;
  for (int64_t i = 0; i < n; i++) {
    bool begins = i == 0 || run[i - 1] == 1;
    if (begins) axis.groups++, axis.pairs += count[i];
    group[i] = static_cast<int32_t>(axis.groups - 1);
  }
  axis.run = run.data(), axis.group = group.data();
}

// Offsets count the cells of the longest window. Larger offsets point outside of every plane.
void PreparedProblem::derive_jump() {
  const Problem& p = problem_;
  jump_.assign(kOffsets, -(int64_t{1} << 62));
  int64_t d = p.d.longest, h = p.h.longest, w = p.w.longest;
  for (int64_t i = 0; i < std::min(d * h * w, kOffsets); i++)
    jump_[i] = (i / w / h * p.d.dilation * p.h.cells + i / w % h * p.h.dilation) * p.w.cells + i % w * p.w.dilation;
  problem_.jump = jump_.data();
}

int64_t PreparedProblem::table_bytes() const {
  size_t bytes = jump_.capacity() * sizeof(int64_t);
  for (const auto& axis : cells_)
    for (const auto& table : axis) bytes += table.capacity() * sizeof(int32_t);
  return static_cast<int64_t>(bytes);
}

KernelList PreparedProblem::kernels() const { return instruction_sets()[current()]->kernels(problem_); }

const Kernel& PreparedProblem::chosen() const { return *chosen_[current()]; }

Fault PreparedProblem::run(Arrays arrays, int threads, const Forced& forced, Interruption* interruption) const {
  const Problem& p = problem_;
  if (p.written_elements() == 0) return {};
  const Kernel& kernel = forced.kernel ? *forced.kernel : chosen();
  arrays.stream = forced.stream >= 0 ? forced.stream : p.gradient() && p.moved_bytes() >= kernel.stream_bytes;
  arrays.tight = forced.tight;
  Fault fault = run_kernel(kernel, arrays, threads, forced.chunk, interruption);
  KernelList list = kernels();
  for (const Kernel* next = &kernel + 1; fault.retry && next < list.first + list.count; next++)
    if (!next->refuse(p, true)) fault = run_kernel(*next, arrays, threads, forced.chunk, interruption);
  return fault;
}

Fault PreparedProblem::run_kernel(const Kernel& kernel, const Arrays& arrays, int threads, int64_t chunk,
                                  Interruption* interruption) const {
  const Problem& p = problem_;
  int64_t units = kernel.units(p);
  Parts parts(p, work_, units, threads, chunk);
  int64_t useful = parts.threads, each = (kernel.scratch(p, arrays) + 63) / 64 * 64;
  Scratch scratch(each * useful, !interruption);
  Fault fault = run_units(threads < 0 ? -useful : useful, units, parts.chunk, interruption, [&](int worker) {
    return [&, memory = scratch.bytes() + worker * each, first = true](int64_t begin, int64_t end, Fault& mine) mutable {
      if (first && kernel.begin) kernel.begin(p, arrays, memory);
      first = false;
      kernel.run(p, arrays, begin, end, memory, mine);
    };
  });
  fault.retry |= fault.missing != 0;
  if (interruption && interruption->ended()) fault.retry = false;
  return fault;
}

#if defined(__x86_64__) && !defined(POOLTIDE_ONLY_BASELINE)
namespace {

struct Supported {
  bool avx2 = false, avx512 = false;
};

// What the processor and the operating system support. __builtin_cpu_supports would need symbols of libgcc, which
// not every compiler links.
Supported supported() {
  Supported found;
  unsigned a, b, c, d, saved, unused;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_F16C)) return found;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  __asm__("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0));  // the registers that the system saves
  constexpr unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  found.avx2 = (b & bit_AVX2) && (saved & 0x06) == 0x06;
  found.avx512 = found.avx2 && (b & avx512) == avx512 && (saved & 0xe6) == 0xe6;
  return found;
}

}  // namespace
#endif

#define POOLTIDE_SET(isa) {#isa, average_gradients_##isa, maximum_gradients_##isa, forwards_##isa, regions_##isa}

const InstructionSets& instruction_sets() {
  static constexpr InstructionSet baseline = POOLTIDE_SET(baseline);
#if defined(__x86_64__) && !defined(POOLTIDE_ONLY_BASELINE)
  static constexpr InstructionSet avx2 = POOLTIDE_SET(avx2), avx512 = POOLTIDE_SET(avx512);
#endif
  static const InstructionSets found = [] {
    InstructionSets sets{{&baseline}, 1};
#if defined(__x86_64__) && !defined(POOLTIDE_ONLY_BASELINE)
    if (supported().avx2) sets.first[sets.count++] = &avx2;
    if (supported().avx512) sets.first[sets.count++] = &avx512;
#endif
    return sets;
  }();
  return found;
}

bool use_instruction_set(const char* name) {
  const auto& sets = instruction_sets();
  for (size_t i = 0; i < sets.size(); i++)
    if (std::strcmp(sets[i]->name, name) == 0) {
      chosen_set.store(i, std::memory_order_release);
      return true;
    }
  return false;
}

const InstructionSet& current_set() { return *instruction_sets()[current()]; }

const char* instruction_set() { return current_set().name; }

}  // namespace pooltide
