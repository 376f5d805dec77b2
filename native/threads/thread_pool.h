// A pool of threads that survives fork(): the child process starts its own helpers when it needs them.
//
// Only one call at a time uses the helpers. A call that finds them busy works alone, so Python threads never
// wait for each other. A call does not wait for helpers that have not started before the work is done.

#pragma once

namespace pooltide {

// Calls work(context, worker) on up to `threads` threads, including the calling thread, each with another
// `worker` from 0 up. Returns when all calls have returned. `work` must not throw.
void run_on_threads(int threads, void (*work)(void* context, int worker), void* context);

}  // namespace pooltide
