#include "thread_pool.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace pooltide {
namespace {

class Pool {
 public:
  bool claim() { return in_use_.try_lock(); }
  void release() { in_use_.unlock(); }

  void run(int threads, void (*work)(void*, int), void* context) {
    {
      std::lock_guard<std::mutex> lock(state_);
      while (helpers_ < threads - 1 && start_helper()) {}
      work_ = work, context_ = context;
      wanted_ = threads - 1 < helpers_ ? threads - 1 : helpers_;
      next_ = 1;
    }
    wake_.notify_all();
    work(context, 0);
    std::unique_lock<std::mutex> lock(state_);
    wanted_ = 0;
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

  void help() {
    std::unique_lock<std::mutex> lock(state_);
    for (;;) {
      wake_.wait(lock, [this] { return wanted_ > 0; });
      wanted_--;
      running_++;
      int worker = next_++;
      auto work = work_;
      auto context = context_;
      lock.unlock();
      work(context, worker);
      lock.lock();
      if (--running_ == 0) idle_.notify_one();
    }
  }

  std::mutex in_use_, state_;
  std::condition_variable wake_, idle_;
  void (*work_)(void*, int) = nullptr;
  void* context_ = nullptr;
  int helpers_ = 0, wanted_ = 0, running_ = 0, next_ = 1;
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
