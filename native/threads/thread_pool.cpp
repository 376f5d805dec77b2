// The thread pool of thread_pool.h.
//
// Helpers are started at the first call that wants them, and sleep between calls. They watch for a new call for a
// short time before they sleep. A helper has the same number in every call if it can, so that it works on the same
// part of the data. After fork() the child forgets the parent's helpers and starts its own.

#include "thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

namespace pooltide {
namespace {

constexpr int kMostHelpers = 255;
// To wake a sleeping thread may take 100 µs on a virtual machine, so a thread spins before it sleeps: a helper until
// the next call of a loop, the calling thread until the last chunk of another thread is done.
constexpr auto kHelperSpin = std::chrono::microseconds(100), kCallerSpin = std::chrono::microseconds(1000);

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `done` returns true, for `most` at most.
template <class F> void spin(std::chrono::microseconds most, F done) {
  auto end = std::chrono::steady_clock::now() + most;
  do {
    for (int i = 0; i < 16; i++, pause())
      if (done()) return;
  } while (std::chrono::steady_clock::now() < end);
}

// Holds a mutex that other threads hold for some instructions at most. std::mutex alone would let the thread sleep.
class Hold : public std::unique_lock<std::mutex> {
 public:
  explicit Hold(std::mutex& mutex) : std::unique_lock<std::mutex>(mutex, std::defer_lock) { again(); }
  void again() {
    for (int i = 0; i < 2000; i++, pause())
      if (try_lock()) return;
    lock();
  }
};

class Pool {
 public:
  // A lock that owns the helpers, or owns nothing if another call has them.
  std::unique_lock<std::mutex> claim() { return {in_use_, std::try_to_lock}; }

  void run(int threads, void (*work)(void*, int), void* context) {
    {
      Hold hold(state_);
      threads = std::min(threads, kMostHelpers + 1);
      while (helpers_ < threads - 1 && start_helper()) {}
      work_ = work, context_ = context;
      asked_ = std::min(threads - 1, helpers_.load());
      std::fill_n(taken_, asked_ + 1, false);
      wanted_ = asked_;
    }
    wake(threads - 1);
    work(context, 0);
    {
      Hold hold(state_);
      wanted_ = 0;
    }
    if (may_spin()) spin(kCallerSpin, [this] { return running_ == 0; });
    Hold hold(state_);
    idle_.wait(hold, [this] { return running_ == 0; });
  }

 private:
  // Returns false if there is no thread or no memory for one: then the call runs on fewer threads.
  bool start_helper() {
    try {
      std::thread(&Pool::help, this, helpers_ + 1).detach();
    } catch (const std::exception&) {
      return false;
    }
    helpers_++;
    return true;
  }

  // Wakes two helpers at most. Each helper wakes two more, so that no thread spends its time on waking all.
  void wake(int wanted) {
    for (int i = 0; i < 2 && i < wanted; i++) wake_.notify_one();
  }

  // A thread that spins must not take a processor from one that works.
  bool may_spin() const { return helpers_ < (int)std::thread::hardware_concurrency(); }

  // The number of a helper in this call: its own, or another one that is free.
  int take_number(int own) {
    int number = own;
    if (own > asked_ || taken_[own])
      for (number = 1; taken_[number];) number++;
    taken_[number] = true;
    return number;
  }

  void help(int own) {
    Hold hold(state_);
    for (;;) {
      if (wanted_ == 0 && may_spin()) {
        hold.unlock();
        spin(kHelperSpin, [this] { return wanted_ > 0; });
        hold.again();
      }
      wake_.wait(hold, [this] { return wanted_ > 0; });
      int left = --wanted_, worker = take_number(own);
      running_++;
      auto work = work_;
      auto context = context_;
      hold.unlock();
      wake(left);
      work(context, worker);
      hold.again();
      if (--running_ == 0) idle_.notify_one();
    }
  }

  std::mutex in_use_, state_;
  std::condition_variable wake_, idle_;
  void (*work_)(void*, int) = nullptr;
  void* context_ = nullptr;
  std::atomic<int> helpers_{0}, wanted_{0}, running_{0};  // changed with state_ held
  int asked_ = 0;                  // helpers that the call may have
  bool taken_[kMostHelpers + 1];   // their numbers, from 1 on
};

// Never destroyed: helpers may outlive the main thread's last statement. Constructed when the library is
// loaded: during a first call, another thread could fork while the pool is half constructed.
alignas(Pool) char memory[sizeof(Pool)];
Pool* const pool = new (memory) Pool;

std::atomic<OpenMpParallel> parallel{nullptr};
std::atomic<OpenMpNumber> number{nullptr};
std::atomic<bool> forked{false};

[[maybe_unused]] const int reset_in_child = pthread_atfork(nullptr, nullptr, [] {
  new (memory) Pool;
  parallel = nullptr;
  forked = true;
});

struct TeamCall {
  int threads;
  void (*work)(void*, int);
  void* context;

  // Every thread of the team calls it. Those that the call does not want return at once.
  static void on_thread(void* given) {
    auto& call = *static_cast<TeamCall*>(given);
    int worker = number.load(std::memory_order_relaxed)();
    if (worker < call.threads) call.work(call.context, worker);
  }
};

}  // namespace

void use_openmp(OpenMpParallel with_parallel, OpenMpNumber with_number) {
  number = with_number;
  parallel = forked ? nullptr : with_parallel;
}

void run_on_threads(int threads, void (*work)(void*, int), void* context) {
  OpenMpParallel team = threads < 0 ? parallel.load() : nullptr;
  threads = std::abs(threads);
  if (threads < 2) return work(context, 0);
  if (team) {
    TeamCall call{threads, work, context};
    // The whole team, as a runtime ends the threads that a smaller team leaves out.
    return team(TeamCall::on_thread, &call, 0, 0);
  }
  std::unique_lock<std::mutex> helpers = pool->claim();
  if (!helpers) return work(context, 0);
  pool->run(threads, work, context);
}

}  // namespace pooltide
