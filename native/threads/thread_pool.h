// A pool of threads that survives fork(): the child starts its own when it needs them.
//
// One call at a time has the helpers; a call that finds them busy works alone, so that many Python
// threads never wait for each other. A helper that wakes too late is not waited for either.

#pragma once

namespace pooltide {

// Calls work(context, worker) on up to `threads` threads, this one included, with distinct `worker`
// from 0 up; returns when all have returned. `work` must not throw.
void run_on_threads(int threads, void (*work)(void* context, int worker), void* context);

}  // namespace pooltide
