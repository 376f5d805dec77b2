// How kernels report indices outside their planes.
#pragma once

// Counts an index outside its plane, and keeps the first position.
__device__ __forceinline__ void report_fault(u64 *faults, i64 position) {
  atomicAdd(faults, 1ull);
  atomicMin(faults + 1, (u64)position);
}
