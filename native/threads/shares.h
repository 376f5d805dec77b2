// How the threads of a call share its units of work: in chunks, each from its own part first.
//
// Every worker begins in its own part of the units, always the same one, so that a loop of equal calls finds its
// data in the caches of the same processors. A worker whose part is done takes chunks of the other parts. No worker
// takes any after an interruption.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "interruption.h"

namespace pooltide {

class Shares {
 public:
  Shares(int64_t units, int64_t chunk, int64_t workers, Interruption* interruption)
      : units_(units), chunk_(chunk), chunks_((units + chunk - 1) / chunk), parts_(std::min(workers, kMost)),
        interruption_(interruption) {
    for (int64_t part = 0; part < parts_; part++) next_[part].store(first(part), std::memory_order_relaxed);
  }

  // Sets begin and end to a chunk that no worker has had. Returns false if there is none left, or the call ends early.
  bool take(int worker, int64_t& begin, int64_t& end) {
    if (interruption_ && interruption_->ends(worker)) return false;
    for (int64_t i = 0; i < parts_; i++) {
      int64_t part = (worker + i) % parts_;
      int64_t chunk = next_[part].fetch_add(1, std::memory_order_relaxed);
      if (chunk >= first(part + 1)) continue;
      begin = chunk * chunk_, end = std::min(begin + chunk_, units_);
      return true;
    }
    return false;
  }

 private:
  static constexpr int64_t kMost = 64;  // parts; more workers begin in the same ones

  int64_t first(int64_t part) const { return chunks_ * part / parts_; }

  int64_t units_, chunk_, chunks_, parts_;
  Interruption* interruption_;
  std::atomic<int64_t> next_[kMost];  // the next chunk of each part
};

}  // namespace pooltide
