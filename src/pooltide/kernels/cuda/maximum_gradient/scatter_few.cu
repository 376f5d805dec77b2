// The gradient of maxima with few windows: nearly every cell is zero, so the result is filled with zeros first, and
// then the cells that windows name are written.
//
// A thread takes a window. If other windows may name the same cell, the thread compares its index with the indices of
// all windows of the plane, and adds the gradients of the windows that name the cell, in ascending order. Only the
// thread of the first such window writes the sum. An index may name any cell of the plane, also outside its window.
//
// A plane is plane_cells · inner elements, where inner is 1 or the channels, and the result is one run of elements.
//
//     FILLS 1, WRITES 1  a block fills `span` vectors of the result, and writes the cells among them. It reads all
//                        windows of the planes that it has a part of
//     FILLS 1, WRITES 0  a block only fills. The next launch writes the cells:
//     FILLS 0, WRITES 1  a thread takes one window. It computes the sum, waits for the end of the launch that fills,
//                        and then writes the sum
#include "indices.h"

#define VECTOR (16 / (int)sizeof(Element))  // elements that are filled at once
#define AHEAD 8                             // indices that are loaded together

// Elements of the result.
struct Part {
  i64 begin, end;
};

#if FILLS
// How many elements lie between the last vector's boundary and the result.
__device__ __forceinline__ int skipped(const Parameters &p) {
  return (int)((u64)p.out / sizeof(Element) % VECTOR);
}

__device__ __forceinline__ Part part_of_block(const Parameters &p) {
  const i64 begin = (i64)blockIdx.x * p.span * VECTOR - skipped(p), elements = p.planes * p.plane_elements;
  const Part part = {max(begin, 0ll), min(begin + (i64)p.span * VECTOR, elements)};
  return part;
}

__device__ __forceinline__ void fill(const Parameters &p, const Part &part) {
  Element *out = p.out + ((i64)blockIdx.x * p.span * VECTOR - skipped(p));
  const int first = (int)(p.out + part.begin - out), last = (int)(p.out + part.end - out);
  const int whole = (first + VECTOR - 1) / VECTOR * VECTOR, rest = max(last / VECTOR * VECTOR, whole);
#pragma unroll 4
  for (int i = whole + threadIdx.x * VECTOR; i < rest; i += THREADS * VECTOR)
    *(uint4 *)(out + i) = make_uint4(0, 0, 0, 0);
  const int i = threadIdx.x;
  if (first + i < min(whole, last)) out[first + i] = (Element)0;
  if (rest + i < last) out[rest + i] = (Element)0;
}
#endif

#if WRITES
struct Window {
  Index index;
  Element gradient;
};

// Where a window writes.
struct Target {
  i64 at;     // element of the result, or -1 if it is in another part or in none
  i64 start;  // window 0 of the plane and channel, among all windows
  int q, cell;
};

// The target of a window. `nth` is its place among the windows from the first one of `plane` on. `report`: count an
// index outside the plane, in the block that has the plane's first element.
__device__ __forceinline__ Target target_of(const Parameters &p, const Part &part, i64 plane, u32 nth, Index index,
                                            bool report) {
  const u32 later = over(nth, p.by_plane_windows), rest = nth - later * p.by_plane_windows.n;
  const u32 q = over(rest, p.by_inner), c = rest - q * p.by_inner.n;
  plane += later;
  const int cell = cell_of(index, q, p);
  const i64 corner = plane * p.plane_elements, at = corner + (i64)cell * p.by_inner.n + c;
  if (report && cell < 0 && corner >= part.begin && corner < part.end)  // the position counts (N, C, Do, Ho, Wo)
    report_fault(p.faults, (plane * p.by_inner.n + c) * p.windows + q);
  const bool inside = cell >= 0 && at >= part.begin && at < part.end;
  const Target found = {inside ? at : -1, plane * p.by_plane_windows.n + c, (int)q, cell};
  return found;
}

// Adds to `sum` the gradients of the other windows that name the target's cell; returns false if one before it does.
__device__ __forceinline__ bool add_others(const Parameters &p, const Target &target, Index index, Sum *sum) {
  const int inner = p.by_inner.n, windows = p.windows, q = target.q;
  const Index *next = p.indices + target.start;
  for (int from = 0; from < windows; from += AHEAD) {
    Index found[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i, next += inner) {
      if (from + i < windows) found[i] = *next;
    }
    u32 same = 0;  // bit i: window from + i names the cell
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
#if INDEX == 1
      if (from + i < windows && cell_of(found[i], from + i, p) == target.cell) same |= 1u << i;
#else
      if (from + i < windows && found[i] == index) same |= 1u << i;
#endif
    }
    if ((u32)(q - from) < AHEAD) same &= ~(1u << (q - from));
    for (; same; same &= same - 1) {
      const int j = from + __ffs(same) - 1;
      if (j < q) return false;
      *sum += widen(p.grad[target.start + j * inner]);
    }
  }
  return true;
}
#endif

#if !WRITES

extern "C" __global__ void __launch_bounds__(THREADS) scatter_few(const Parameters p) {
  let_next_launch_start();
  fill(p, part_of_block(p));
}

#elif !FILLS

extern "C" __global__ void __launch_bounds__(THREADS) scatter_few(const Parameters p) {
  const Part all = {0, p.planes * p.plane_elements};
  const i64 begin = (i64)blockIdx.x * THREADS, plane = begin / p.by_plane_windows.n;
  const i64 i = begin + threadIdx.x;
  Target target = {-1, 0, 0, 0};
  Sum sum = 0;
  if (i < p.planes * p.by_plane_windows.n) {
    const Index index = p.indices[i];
    sum += widen(p.grad[i]);
    target = target_of(p, all, plane, (u32)(i - plane * p.by_plane_windows.n), index, true);
    if (target.at >= 0 && !add_others(p, target, index, &sum)) target.at = -1;
  }
  wait_for_launch_before();
  if (target.at >= 0) p.out[target.at] = narrow(sum);
}

#else

extern "C" __global__ void __launch_bounds__(THREADS) scatter_few(const Parameters p) {
  SHARED(arena);
  const Part part = part_of_block(p);
  if (part.begin >= part.end) return;
  const i64 plane = part.begin / p.plane_elements;
  const u32 planes = (u32)(part.end - 1 - plane * p.plane_elements) / (u32)p.plane_elements + 1;
  const i64 start = plane * p.by_plane_windows.n;
  const int count = planes * p.by_plane_windows.n;  // windows of these planes
  auto load = [&](int i) {
    Window found = {0, 0};
    if (i < count) found.index = p.indices[start + i], found.gradient = p.grad[start + i];
    return found;
  };
  const Window first = load(threadIdx.x);  // now, so that it arrives while the block fills
  fill(p, part);

  // Bits for each element of the part: whether a window names it, and whether two windows do.
  const int words = p.span * VECTOR / 32 + 1;
  u32 *named = (u32 *)arena, *twice = named + words;
  if (p.windows > 1) {
    for (int i = threadIdx.x; i < 2 * words; i += THREADS) named[i] = 0;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += THREADS) {
      const Index index = i < THREADS ? first.index : p.indices[start + i];
      const i64 at = target_of(p, part, plane, i, index, false).at;
      if (at < 0) continue;
      const u32 local = (u32)(at - part.begin), bit = 1u << local % 32;
      if (atomicOr(named + local / 32, bit) & bit) atomicOr(twice + local / 32, bit);
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += THREADS) {
    const Window own = i < THREADS ? first : load(i);
    const Target target = target_of(p, part, plane, i, own.index, true);
    if (target.at < 0) continue;
    const u32 local = (u32)(target.at - part.begin);
    Sum sum = (Sum)0 + widen(own.gradient);
    const bool alone = p.windows == 1 || !(twice[local / 32] >> local % 32 & 1);
    if (alone || add_others(p, target, own.index, &sum)) p.out[target.at] = narrow(sum);
  }
}

#endif
