// A pool of threads that survives fork(): the child process starts its own helpers when it needs them.
//
// Only one call at a time uses the helpers. A call that finds the helpers busy runs on its calling thread only, so
// Python threads never wait for each other. When the calling thread has finished its work, the call waits only for
// helpers that have already started.
//
// A process may have threads of an OpenMP runtime, such as PyTorch's. Two pools would compete for the processors: the
// threads of one spin while those of the other work. So a call may use that runtime's team instead of this pool.

#pragma once

namespace pooltide {

// Calls work(context, worker) on up to `threads` threads, including the calling thread. Each thread has a different
// `worker` number, from 0 up; the calling thread has 0. Returns when all calls of `work` have returned. `work` must not throw. If `threads` is
// negative, up to -threads threads of the OpenMP team do the work, or of this pool if use_openmp gave no team.
void run_on_threads(int threads, void (*work)(void* context, int worker), void* context);

// Gives the functions GOMP_parallel and omp_get_thread_num of an OpenMP runtime. A process that fork() made uses the
// pool, whatever is given, because OpenMP runtimes do not survive a fork.
using OpenMpParallel = void (*)(void (*work)(void*), void* data, unsigned threads, unsigned flags);
using OpenMpNumber = int (*)();
void use_openmp(OpenMpParallel parallel, OpenMpNumber number);

}  // namespace pooltide
