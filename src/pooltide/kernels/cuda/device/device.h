// What every kernel needs: element types, exact quotients, and division of indices by a fixed number.
//
// ELEMENT names the storage type: 0 float, 1 double, 2 IEEE half, 3 bfloat16. Sums are in Sum: float for
// the first, third and fourth, double for the second. No CUDA header is used, as users may have none: halves
// are converted by one PTX instruction on the GPU. The host build of the same source brings its own
// conversions (native/check/simt.h).
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#if ELEMENT == 0
typedef float Element;
typedef float Sum;
#elif ELEMENT == 1
typedef double Element;
typedef double Sum;
#else
typedef unsigned short Element;
typedef float Sum;
#endif

// INDEX: the bytes of an index, 1 for offsets within windows.
#if defined(INDEX) && INDEX == 8
typedef i64 Index;
#elif defined(INDEX) && INDEX == 4
typedef int Index;
#elif defined(INDEX)
typedef unsigned char Index;
#endif

#ifdef __CUDACC_RTC__
// Dynamic shared memory as bytes, aligned for vectors.
#define SHARED(name) extern __shared__ __align__(16) unsigned char name[]

// The compiler moves no access to memory across this.
__device__ __forceinline__ void keep_order() { asm volatile("" ::: "memory"); }

// Keeps a number, or an address of global memory, in a register. Otherwise the compiler may compute it again and again.
__device__ __forceinline__ u32 in_register(u32 x) {
  asm("" : "+r"(x));
  return x;
}
template <class T>
__device__ __forceinline__ const T *in_register(const T *x) {
  asm("" : "+l"(x));
  __builtin_assume(__isGlobal(x));
  return x;
}

// Lets the next launch start before this one ends: as soon as all its blocks have called this function or have ended.
// If the next launch needs results of this one, it must call wait_for_launch_before.
__device__ __forceinline__ void let_next_launch_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until the launch before this one has ended and its results are there.
__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ float from_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ unsigned short to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif

__device__ __forceinline__ float from_bfloat16(unsigned short bits) { return __uint_as_float((u32)bits << 16); }

// Rounds to the nearest, ties to even. A NaN stays a NaN.
__device__ __forceinline__ unsigned short to_bfloat16(float value) {
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 900
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  u32 bits = __float_as_uint(value);
  if (value != value) return 0x7fff;
  return (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
#endif
}

#if ELEMENT == 2
__device__ __forceinline__ Sum widen(Element x) { return from_half(x); }
__device__ __forceinline__ Element narrow(Sum x) { return to_half(x); }
#elif ELEMENT == 3
__device__ __forceinline__ Sum widen(Element x) { return from_bfloat16(x); }
__device__ __forceinline__ Element narrow(Sum x) { return to_bfloat16(x); }
#else
__device__ __forceinline__ Sum widen(Element x) { return x; }
__device__ __forceinline__ Element narrow(Sum x) { return x; }
#endif

// Two sums as two halves in one word, the first in the low half.
#if ELEMENT >= 2
__device__ __forceinline__ u32 narrow_two(float low, float high) {
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 900
  u32 both;
#if ELEMENT == 2
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
  return both;
#else
  return (u32)narrow(low) | (u32)narrow(high) << 16;
#endif
}
#endif

// N sums as N elements; `to` is aligned for all of them together.
template <int N>
__device__ __forceinline__ void narrow_all(Element *to, const Sum *sums) {
#if ELEMENT >= 2
  if (N % 2 == 0) {
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) ((u32 *)to)[i / 2] = narrow_two(sums[i], sums[i + 1]);
    return;
  }
#endif
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = narrow(sums[i]);
}

// The numbers with which `over` computes x / n for 0 <= x < 2^31 and n >= 1. divider(n) in kernel_tables.py makes them.
struct Divider {
  u32 n, magic, shift;
};

__device__ __forceinline__ u32 over(u32 x, Divider by) {
  return by.magic == 0 ? x : __umulhi(x, by.magic) >> by.shift;
}

// An axis of windows, Axis of geometry.py. k is 0 if the axis is adaptive.
struct Axis {
  int length, outputs, k, s, p, dilation;
};
