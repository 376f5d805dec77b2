// CUDA threads on the host: each thread of a block is a fiber, and blocks run one after another.
//
// A fiber runs until it waits: at a barrier of the block, or in an operation of its warp. A waiting fiber
// resumes when all fibers that it waits for have arrived. The next fiber to run is drawn at random, and so is the
// order of the blocks, so that a result that depends on an order that CUDA does not promise is wrong here, too.
// Shared memory is a heap block of the launch's size, filled with 0xFF bytes, which are NaNs, before each block.
//
// What CUDA forbids ends the process with a sentence: barriers that only some threads reach, lanes that meet in
// different operations, threads that wait for ever.

#pragma once

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

struct Index3 {
  unsigned x = 0;
};
inline Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace simt {

#if !defined(__x86_64__)
#error "the switch between fibers is written for x86-64"
#endif
// Saves the registers of the running fiber and its stack pointer at `*from`; continues the fiber that saved `to`.
extern "C" void simt_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden simt_switch
.type simt_switch, @function
simt_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size simt_switch, .-simt_switch
)");

using u32 = uint32_t;
using u64 = uint64_t;
constexpr int kWarp = 32;
constexpr size_t kStack = 128 << 10, kPage = 4096;

// Of functions that run at each switch: they are right, and need not be watched.
#define SIMT_FAST __attribute__((no_sanitize("address", "undefined"), optimize("O2"))) inline

enum class Wait { none, barrier, warp, finished };
// How the lanes of a warp exchange values. Each lane gives a value and a number.
enum class Exchange { none, sync, shuffle, ballot, match };

struct Fiber {
  void* stack_pointer = nullptr;
  void* fake_stack = nullptr;  // AddressSanitizer's
  const char* bottom = nullptr;
  size_t size = 0;
  Wait wait = Wait::none;
  int line = 0;  // where it waits
  // An operation of a warp: what the lane gives, and what it gets.
  Exchange exchange = Exchange::none;
  u32 mask = 0, number = 0;
  u64 value = 0, result = 0;
};

// Bit i is of lane i.
struct Warp {
  u32 alive = 0;    // the lane exists, and has not returned from the kernel
  u32 arrived = 0;  // it waits in an operation
};

using Body = void (*)(const void* parameters);

// The one launch that runs now.
struct Launch {
  Body body = nullptr;
  const void* parameters = nullptr;
  u64 random = 1;
  const char* label = "";
  unsigned char* shared = nullptr;
  std::vector<Fiber> fibers;
  std::vector<unsigned> ready;
  unsigned current = 0, waiting = 0, finished = 0;
  int barrier_line = 0;  // where those wait that wait at a barrier
  std::vector<Warp> warps;
  Fiber scheduler;
};
inline Launch launch;

[[noreturn]] inline void fail(const char* text, int line) {
  std::fprintf(stderr, "simt: %s (%s, line %d, block %u, thread %u)\n", text, launch.label, line, blockIdx.x, threadIdx.x);
  std::fflush(stderr);
  std::_Exit(66);
}

SIMT_FAST u64 random_below(u64 n) {
  launch.random ^= launch.random << 13, launch.random ^= launch.random >> 7, launch.random ^= launch.random << 17;
  return (launch.random * 0x2545F4914F6CDD1D >> 32) % n;
}

SIMT_FAST void switch_fiber(Fiber& from, Fiber& to, bool for_ever) {
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &from.fake_stack, to.bottom, to.size);
  simt_switch(&from.stack_pointer, to.stack_pointer);
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
}

SIMT_FAST void resume(unsigned thread) {
  launch.current = thread, threadIdx.x = thread;
  switch_fiber(launch.scheduler, launch.fibers.data()[thread], false);
}
SIMT_FAST Fiber& self() { return launch.fibers.data()[launch.current]; }
SIMT_FAST void make_ready(unsigned thread) { launch.fibers.data()[thread].wait = Wait::none, launch.ready.push_back(thread); }

SIMT_FAST void yield() { switch_fiber(self(), launch.scheduler, false); }

// Lets the fibers go on that wait at the barrier, once no other fiber is left that could come.
inline void release_barrier() {
  if (launch.waiting == 0 || launch.waiting + launch.finished < launch.fibers.size()) return;
  launch.waiting = 0;
  for (unsigned i = 0; i < launch.fibers.size(); i++)
    if (launch.fibers[i].wait == Wait::barrier) make_ready(i);
}

// What lane `lane` gets from an operation of the lanes in `mask`.
SIMT_FAST u64 exchanged(const Fiber* lanes, int lane, u32 mask, u32 ballot) {
  const Fiber& me = lanes[lane];
  if (me.exchange == Exchange::sync) return 0;
  if (me.exchange == Exchange::ballot) return ballot;
  if (me.exchange == Exchange::shuffle)
    return mask >> me.number & 1 ? lanes[me.number].value : 0xBADBADBADBADBADB;  // CUDA promises nothing there
  u64 result = 0;
  for (int i = 0; i < kWarp; i++)
    if (mask >> i & 1) result |= u64(lanes[i].value == me.value) << i;
  return result;
}

// Completes the operation in which a lane waits, if all its lanes have arrived.
SIMT_FAST void release_lane(unsigned warp, int lane) {
  Warp& state = launch.warps.data()[warp];
  Fiber* lanes = launch.fibers.data() + warp * kWarp;
  const u32 mask = lanes[lane].mask & state.alive;
  if ((state.arrived & mask) != mask) return;
  bool all = true;
  u32 ballot = 0;
  for (int i = 0; i < kWarp; i++) {
    if (!(mask >> i & 1)) continue;
    ballot |= u32(lanes[i].value != 0) << i;
    if (lanes[i].mask != lanes[lane].mask) all = false;
    else if (lanes[i].exchange != lanes[lane].exchange) fail("lanes of a warp meet in different operations", lanes[i].line);
  }
  if (!all) return;
  state.arrived &= ~mask;
  for (int i = 0; i < kWarp; i++)
    if (mask >> i & 1) lanes[i].result = exchanged(lanes, i, mask, ballot), make_ready(warp * kWarp + i);
}

// A lane of the warp has returned: no operation waits for it any longer.
inline void release_warp(unsigned warp) {
  for (int lane = 0; lane < kWarp; lane++)
    if (launch.warps[warp].arrived >> lane & 1) release_lane(warp, lane);
}

inline void barrier(int line) {
  if (launch.waiting && launch.barrier_line != line) fail("threads of a block wait at different barriers", line);
  launch.barrier_line = line;
  self().wait = Wait::barrier, self().line = line, launch.waiting++;
  release_barrier();
  yield();
}

SIMT_FAST u64 exchange(Exchange kind, u32 mask, u64 value, u32 number, int line) {
  Fiber& me = self();
  const unsigned warp = launch.current / kWarp, lane = launch.current % kWarp;
  if (!(mask >> lane & 1)) fail("a lane is not in the mask of its own operation", line);
  me.wait = Wait::warp, me.line = line;
  me.exchange = kind, me.mask = mask, me.value = value, me.number = number;
  launch.warps.data()[warp].arrived |= 1u << lane;
  release_lane(warp, lane);
  yield();
  return me.result;
}

// The first function of a fiber.
inline void begin() {
  Fiber& scheduler = launch.scheduler;
  const void* bottom;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &scheduler.size);
  scheduler.bottom = static_cast<const char*>(bottom);
  launch.body(launch.parameters);
  const unsigned warp = launch.current / kWarp;
  self().wait = Wait::finished, launch.finished++, launch.warps[warp].alive &= ~(1u << launch.current % kWarp);
  release_barrier();
  release_warp(warp);
  switch_fiber(self(), scheduler, true);
}

// Stacks for `count` fibers, with a page before each that nobody may touch.
inline char* stacks(size_t count) {
  static size_t have = 0;
  static char* memory = nullptr;
  if (count > have) {
    if (memory) munmap(memory, have * kStack);
    memory = static_cast<char*>(mmap(nullptr, count * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (size_t i = 0; i < count; i++) mprotect(memory + i * kStack, kPage, PROT_NONE);
    have = count;
  }
  return memory;
}

inline void run_block(unsigned threads) {
  launch.fibers.assign(threads, Fiber());
  launch.warps.assign((threads + kWarp - 1) / kWarp, Warp());
  launch.ready.clear();
  launch.waiting = launch.finished = 0;
  char* memory = stacks(threads);
  for (unsigned i = 0; i < threads; i++) {
    Fiber& fiber = launch.fibers[i];
    fiber.bottom = memory + i * kStack + kPage, fiber.size = kStack - kPage;
    void** top = reinterpret_cast<void**>(memory + (i + 1) * kStack);
    *--top = nullptr;  // the stack's alignment at the begin of a function
    *--top = reinterpret_cast<void*>(&begin);
    for (int r = 0; r < 6; r++) *--top = nullptr;
    fiber.stack_pointer = top;
    launch.warps[i / kWarp].alive |= 1u << i % kWarp;
    launch.ready.push_back(i);
  }
  while (!launch.ready.empty()) {
    std::swap(launch.ready[random_below(launch.ready.size())], launch.ready.back());
    unsigned next = launch.ready.back();
    launch.ready.pop_back();
    resume(next);
  }
  for (unsigned i = 0; i < threads; i++) {
    const Fiber& fiber = launch.fibers[i];
    threadIdx.x = i;
    if (fiber.wait == Wait::barrier) fail("a thread waits for ever at a barrier that other threads do not reach", fiber.line);
    if (fiber.wait == Wait::warp) fail("a thread waits for ever for other lanes of its warp", fiber.line);
  }
}

// A copy of an array in a heap block of its own, at the same address modulo 16: AddressSanitizer then sees
// each access outside of it.
class Copy {
 public:
  Copy(void* original, size_t bytes) : original_(static_cast<char*>(original)), bytes_(bytes), shift_(uintptr_t(original) % 16) {
    block_ = static_cast<char*>(std::malloc(bytes_ + shift_));
    std::memcpy(at(), original_, bytes_);
    __asan_poison_memory_region(block_, shift_);
  }
  Copy(Copy&& other) : Copy(other) { other.block_ = nullptr; }
  char* at() const { return block_ + shift_; }
  void copy_back() const { std::memcpy(original_, at(), bytes_); }
  ~Copy() {
    if (block_) __asan_unpoison_memory_region(block_, shift_);
    std::free(block_);
  }

 private:
  Copy(const Copy&) = default;
  char *original_, *block_;
  size_t bytes_, shift_;
};

struct Array {
  void* data;
  u64 bytes;
  u64 written;  // whether the kernel writes it
};

inline void print_label() { std::fprintf(stderr, "simt: in %s, block %u, thread %u\n", launch.label, blockIdx.x, threadIdx.x); }

struct Grid {
  unsigned blocks, threads;  // threads of a block
  u64 shared;                // bytes of shared memory of a block
};

// Launches the kernel `body`. `parameters` begin with the addresses of the arrays, which are filled in here.
inline void run(Body body, Grid grid, void* parameters, u64 bytes, const Array* arrays, u64 count, u64 seed, const char* label) {
  __sanitizer_set_death_callback(print_label);
  if (grid.threads < 1 || grid.threads > 1024) fail("a block must have 1 to 1024 threads", 0);
  launch.label = label, launch.body = body, launch.random = seed * 0x9E3779B97F4A7C15 | 1;
  std::vector<Copy> copies;
  std::vector<u64> words((bytes + 7) / 8 + 1);
  char* given = reinterpret_cast<char*>(words.data());
  std::memcpy(given, parameters, bytes);
  for (u64 i = 0; i < count; i++) {
    copies.emplace_back(arrays[i].data, arrays[i].bytes);
    words[i] = reinterpret_cast<u64>(copies.back().at());
  }
  launch.parameters = given;
  std::vector<unsigned> order(grid.blocks);
  std::iota(order.begin(), order.end(), 0u);
  blockDim.x = grid.threads, gridDim.x = grid.blocks;
  for (unsigned i = 0; i < grid.blocks; i++) {
    std::swap(order[i], order[i + random_below(grid.blocks - i)]);
    blockIdx.x = order[i];
    launch.shared = static_cast<unsigned char*>(std::malloc(grid.shared));
    std::memset(launch.shared, 0xFF, grid.shared);
    run_block(grid.threads);
    std::free(launch.shared);
  }
  for (u64 i = 0; i < count; i++)
    if (arrays[i].written) copies[i].copy_back();
}

}  // namespace simt
