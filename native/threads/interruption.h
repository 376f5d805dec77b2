// How a long call ends early, for example at Ctrl-C.
//
// Every worker looks here before each chunk of its work (shares.h). Worker 0, the calling thread, asks the caller
// about ten times a second whether to end; then no worker takes another chunk. `ask` may run a handler that makes calls
// of its own, on the same thread.

#pragma once

#include <atomic>
#include <chrono>

namespace pooltide {

// Work is counted in elements that a kernel reads or writes, in its cache too. A call with more work than this takes
// long: it is divided into chunks that have less, which take from some milliseconds to some tenths of a second.
constexpr double kLongWork = 1 << 26;

class Interruption {
  using Clock = std::chrono::steady_clock;

 public:
  using Ask = bool (*)(void* context);
  Interruption(Ask ask, void* context) : ask_(ask), context_(context), next_(Clock::now() + kEvery) {}

  // Returns whether the worker must take no more work.
  bool ends(int worker) {
    if (worker == 0 && !ended() && Clock::now() >= next_) {
      if (ask_(context_)) ended_.store(true, std::memory_order_relaxed);
      next_ = Clock::now() + kEvery;
    }
    return ended();
  }
  bool ended() const { return ended_.load(std::memory_order_relaxed); }

 private:
  static constexpr auto kEvery = std::chrono::milliseconds(100);

  Ask ask_;
  void* context_;
  Clock::time_point next_;  // of worker 0
  std::atomic<bool> ended_{false};
};

}  // namespace pooltide
