// The thread pool of thread_pool.h.
//
// Helpers are started at the first call that wants them, and sleep between calls. They watch for a new call for a
// short time before they sleep. After fork() the child forgets the parent's helpers and starts its own.

#include "thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace pooltide {
namespace {

constexpr auto kSpin = std::chrono::microseconds(30);  // to wake a sleeping thread takes about as long

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `done` returns true, for kSpin at most.
template <class F> void spin(F done) {
  auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; i++, pause())
      if (done()) return;
  } while (std::chrono::steady_clock::now() < end);
}

class Pool {
 public:
  bool claim() { return in_use_.try_lock(); }
  void release() { in_use_.unlock(); }

  void run(int threads, void (*work)(void*, int), void* context) {
    {
      std::lock_guard<std::mutex> lock(state_);
      while (helpers_ < threads - 1 && start_helper()) {}
      work_ = work, context_ = context;
      next_ = 1;
      wanted_ = std::min(threads - 1, helpers_.load());
    }
    wake(threads - 1);
    work(context, 0);
    {
      std::lock_guard<std::mutex> lock(state_);
      wanted_ = 0;
    }
    if (may_spin()) spin([this] { return running_ == 0; });
    std::unique_lock<std::mutex> lock(state_);
    idle_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  bool start_helper() {
    try {
      std::thread(&Pool::help, this).detach();
    } catch (const std::system_error&) {
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

  void help() {
    std::unique_lock<std::mutex> lock(state_);
    for (;;) {
      if (wanted_ == 0 && may_spin()) {
        lock.unlock();
        spin([this] { return wanted_ > 0; });
        lock.lock();
      }
      wake_.wait(lock, [this] { return wanted_ > 0; });
      int left = --wanted_, worker = next_++;
      running_++;
      auto work = work_;
      auto context = context_;
      lock.unlock();
      wake(left);
      work(context, worker);
      lock.lock();
      if (--running_ == 0) idle_.notify_one();
    }
  }

  std::mutex in_use_, state_;
  std::condition_variable wake_, idle_;
  void (*work_)(void*, int) = nullptr;
  void* context_ = nullptr;
  std::atomic<int> helpers_{0}, wanted_{0}, running_{0};  // changed with state_ held
  int next_ = 1;
};

// Never destroyed: helpers may outlive the main thread's last statement. Constructed when the library is
// loaded: during a first call, another thread could fork while the pool is half constructed.
alignas(Pool) char memory[sizeof(Pool)];
Pool* const pool = new (memory) Pool;
[[maybe_unused]] const int reset_in_child = pthread_atfork(nullptr, nullptr, [] { new (memory) Pool; });

}  // namespace

void run_on_threads(int threads, void (*work)(void*, int), void* context) {
  if (threads < 2 || !pool->claim()) return work(context, 0);
  pool->run(threads, work, context);
  pool->release();
}

}  // namespace pooltide
