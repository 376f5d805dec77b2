// Runs the units of a call on threads, and merges their faults.

#pragma once

#include <cstdlib>
#include <mutex>

#include "../problem.h"
#include "shares.h"
#include "thread_pool.h"

namespace pooltide {

// `threads` is as run_on_threads has it. Every worker calls begin(worker) once, which returns a function; it calls
// that function with (begin, end, fault) for every chunk of the units that it takes. Returns the merged fault.
template <class Begin>
Fault run_units(int64_t threads, int64_t units, int64_t chunk, Interruption* interruption, const Begin& begin) {
  struct Job {
    const Begin& begin;
    Shares& shares;
    std::mutex merging;
    Fault fault;
  };
  Shares shares(units, chunk, std::abs(threads), interruption);
  Job job{begin, shares, {}, {}};
  auto work = [](void* context, int worker) {
    Job& job = *static_cast<Job*>(context);
    auto run = job.begin(worker);
    Fault mine;
    int64_t first, end;
    while (job.shares.take(worker, first, end)) run(first, end, mine);
    if (mine.count == 0 && mine.missing == 0 && !mine.retry) return;
    std::lock_guard<std::mutex> hold(job.merging);
    job.fault.merge(mine);
  };
  run_on_threads(static_cast<int>(threads), work, &job);
  return job.fault;
}

}  // namespace pooltide
