// Max unpooling: copies elements to the cells that indices name, or for the gradient from these cells.
//
// Input: an Unpool (unpool.h). Output: every element of Unpool::out, and a Fault with the indices outside the plane.
// Threads share the planes. One thread copies a plane, in ascending order of windows, so the last of equal indices
// wins.

#include "unpool.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "threads/shares.h"
#include "threads/thread_pool.h"

namespace pooltide {
namespace {

constexpr int64_t kThreadBytes = 1 << 18;  // fewer bytes are not worth another thread

// One plane of an array: element i is at data[i * step].
template <class T> struct Plane {
  T* data;
  int64_t step;
  Plane(T* array, const Unpool& u, int64_t plane, int64_t elements)
      : data(array + plane / u.channels * u.channels * elements + plane % u.channels), step(u.channels) {}
  T& operator[](int64_t i) const { return data[i * step]; }
};

template <class Element, class Index> void run_plane(const Unpool& u, int64_t plane, Fault& fault) {
  Plane<const Index> indices(static_cast<const Index*>(u.indices), u, plane, u.windows);
  Plane<const Element> source(static_cast<const Element*>(u.source), u, plane, u.gather ? u.cells : u.windows);
  Plane<Element> out(static_cast<Element*>(u.out), u, plane, u.gather ? u.windows : u.cells);
  if (!u.gather && u.channels == 1) std::memset(out.data, 0, u.cells * sizeof(Element));
  else if (!u.gather) for (int64_t i = 0; i < u.cells; i++) out[i] = 0;
  for (int64_t i = 0; i < u.windows; i++) {
    int64_t index = indices[i];
    bool inside = static_cast<uint64_t>(index) < static_cast<uint64_t>(u.cells);
    if (!inside) fault.add(plane * u.windows + i, index);
    if (u.gather) out[i] = inside ? source[index] : Element(0);
    else if (inside) out[index] = source[i];
  }
}

using RunPlane = void (*)(const Unpool&, int64_t, Fault&);

template <class Element> RunPlane with_index(int bytes) {
  return bytes == 4 ? run_plane<Element, int32_t> : run_plane<Element, int64_t>;
}

RunPlane runner(const Unpool& u) {
  switch (u.itemsize) {
    case 1: return with_index<uint8_t>(u.index_bytes);
    case 2: return with_index<uint16_t>(u.index_bytes);
    case 4: return with_index<uint32_t>(u.index_bytes);
    default: return with_index<uint64_t>(u.index_bytes);
  }
}

struct Job {
  const Unpool& facts;
  RunPlane run;
  Shares& shares;
  std::mutex merging;
  Fault fault;
};

void work(void* context, int worker) {
  Job& job = *static_cast<Job*>(context);
  Fault mine;
  int64_t begin, end;
  while (job.shares.take(worker, begin, end))
    for (int64_t plane = begin; plane < end; plane++) job.run(job.facts, plane, mine);
  if (mine.count == 0) return;
  std::lock_guard<std::mutex> hold(job.merging);
  job.fault.merge(mine);
}

}  // namespace

Fault run_unpool(const Unpool& u, int threads) {
  if (u.planes == 0) return Fault();
  int64_t plane_bytes = (u.cells + u.windows) * u.itemsize + u.windows * u.index_bytes;
  int64_t useful = std::min(u.planes, plane_bytes * u.planes / kThreadBytes + 1);
  int limited = static_cast<int>(std::clamp<int64_t>(useful, 1, std::max(std::abs(threads), 1)));
  Shares shares(u.planes, std::max<int64_t>(1, u.planes / (limited * 8)), limited);
  Job job{u, runner(u), shares, {}, {}};
  run_on_threads(threads < 0 ? -limited : limited, work, &job);
  return job.fault;
}

}  // namespace pooltide
