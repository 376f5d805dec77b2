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
  bool claim() { return taken_.try_lock(); }
  void release() { taken_.unlock(); }

  void run(int threads, void (*work)(void*, int), void* context) {
    {
      std::lock_guard<std::mutex> hold(state_);
      while (helpers_ < threads - 1 && start_helper()) {}
      work_ = work, context_ = context;
      open_ = threads - 1 < helpers_ ? threads - 1 : helpers_;
      next_ = 1;
    }
    wake_.notify_all();
    work(context, 0);
    std::unique_lock<std::mutex> hold(state_);
    open_ = 0;
    idle_.wait(hold, [this] { return running_ == 0; });
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
    std::unique_lock<std::mutex> hold(state_);
    for (;;) {
      wake_.wait(hold, [this] { return open_ > 0; });
      open_--;
      running_++;
      int worker = next_++;
      auto work = work_;
      auto context = context_;
      hold.unlock();
      work(context, worker);
      hold.lock();
      if (--running_ == 0) idle_.notify_one();
    }
  }

  std::mutex taken_, state_;
  std::condition_variable wake_, idle_;
  void (*work_)(void*, int) = nullptr;
  void* context_ = nullptr;
  int helpers_ = 0, open_ = 0, running_ = 0, next_ = 1;
};

// Never destroyed: helpers may outlive the main thread's last statement. Made when the library is
// loaded: a pool that is made at the first call could be half made when another thread forks.
alignas(Pool) char memory[sizeof(Pool)];
Pool* const pool = new (memory) Pool;
[[maybe_unused]] const int child_makes_its_own = pthread_atfork(nullptr, nullptr, [] { new (memory) Pool; });

}  // namespace

void run_on_threads(int threads, void (*work)(void*, int), void* context) {
  if (threads < 2 || !pool->claim()) return work(context, 0);
  pool->run(threads, work, context);
  pool->release();
}

}  // namespace pooltide
