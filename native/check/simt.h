// The names of CUDA that the kernels in kernels/cuda/device/ use, for a C++ compiler on the host.
//
// fibers.h runs the threads. Operations have the results that CUDA documents; where CUDA leaves a result open,
// the result here is a pattern that no kernel expects.

#pragma once

#include "fibers.h"

#include <algorithm>
#include <cmath>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define SHARED(name) unsigned char* name = ::simt::launch.shared

#define SIMT_LINE int line = __builtin_LINE()

inline void __syncthreads(SIMT_LINE) { simt::barrier(line); }
inline void __syncwarp(unsigned mask = ~0u, SIMT_LINE) { simt::exchange(simt::Exchange::sync, mask, 0, 0, line); }

namespace simt {
template <class T> u64 as_word(T value) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  u64 word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return word;
}
template <class T> T from_word(u64 word) {
  T value;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}
// `source` is the lane to read, in a group of `width` lanes; outside of the group a lane gets its own value.
template <class T> T shuffle(unsigned mask, T value, int source, int width, bool inside, int line) {
  int lane = threadIdx.x % kWarp, group = lane / width * width;
  return from_word<T>(exchange(Exchange::shuffle, mask, as_word(value), inside ? group + source % width : lane, line));
}
}  // namespace simt

template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIMT_LINE) {
  return simt::shuffle(mask, value, source & (width - 1), width, true, line);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_LINE) {
  int source = int(threadIdx.x % width) + int(delta);
  return simt::shuffle(mask, value, source, width, source < width, line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, SIMT_LINE) {
  int source = int(threadIdx.x % width) ^ bits;
  return simt::shuffle(mask, value, source, width, source < width, line);
}
template <class T> unsigned __match_any_sync(unsigned mask, T value, SIMT_LINE) {
  return unsigned(simt::exchange(simt::Exchange::match, mask, simt::as_word(value), 0, line));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_LINE) {
  return unsigned(simt::exchange(simt::Exchange::ballot, mask, predicate != 0, 0, line));
}
inline int __any_sync(unsigned mask, int predicate, SIMT_LINE) { return __ballot_sync(mask, predicate, line) != 0; }
inline int __all_sync(unsigned mask, int predicate, SIMT_LINE) { return __ballot_sync(mask, !predicate, line) == 0; }

// A fiber never stops between reading and writing.
namespace simt {
template <class T, class F> T replaced(T* at, F change) {
  T old = *at;
  *at = change(old);
  return old;
}
}  // namespace simt
#define SIMT_ATOMICS(T)                                                                                        \
  inline T atomicAdd(T* at, T x) { return simt::replaced(at, [x](T old) { return (T)(old + x); }); }              \
  inline T atomicOr(T* at, T x) { return simt::replaced(at, [x](T old) { return (T)(old | x); }); }                \
  inline T atomicMin(T* at, T x) { return simt::replaced(at, [x](T old) { return old < x ? old : x; }); }
SIMT_ATOMICS(int)
SIMT_ATOMICS(unsigned)
SIMT_ATOMICS(unsigned long long)
#undef SIMT_ATOMICS

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}

#define SIMT_CAST(name, From, To) \
  inline To name(From x) { return simt::from_word<To>(simt::as_word(x)); }
SIMT_CAST(__float_as_uint, float, unsigned)
SIMT_CAST(__uint_as_float, unsigned, float)
SIMT_CAST(__int_as_float, int, float)
#undef SIMT_CAST

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline double __ddiv_rn(double a, double b) { return a / b; }

template <class T> T __ldg(const T* at) { return *at; }

// A NaN loses, as in CUDA.
#define SIMT_INTEGER(T)                              \
  inline T min(T a, T b) { return a < b ? a : b; }   \
  inline T max(T a, T b) { return a > b ? a : b; }
SIMT_INTEGER(int)
SIMT_INTEGER(unsigned)
SIMT_INTEGER(long long)
SIMT_INTEGER(unsigned long long)
#undef SIMT_INTEGER
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

#define SIMT_VECTORS(T, name)                                                                    \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                             \
  struct alignas(4 * sizeof(T)) name##4 { T x, y, z, w; };                                       \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                     \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SIMT_VECTORS(int, int)
SIMT_VECTORS(unsigned, uint)
SIMT_VECTORS(float, float)
#undef SIMT_VECTORS

// IEEE halves, bit by bit: not every host converts them in hardware.
inline void keep_order() {}
template <class T> T in_register(T x) { return x; }

// Launches run one after another here.
inline void let_next_launch_start() {}
inline void wait_for_launch_before() {}

inline float from_half(unsigned short bits) {
  unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023u;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  float size = exponent == 0 ? float(fraction) * 0x1p-24f : __uint_as_float((exponent + 112) << 23 | fraction << 13);
  return __uint_as_float(sign | __float_as_uint(size));
}
inline unsigned short to_half(float value) {
  unsigned sign = __float_as_uint(value) >> 16 & 0x8000u;
  float size = std::fabs(value);
  if (value != value) return 0x7fff;
  if (size >= 65520) return (unsigned short)(sign | 0x7c00u);
  if (size < 0x1p-14f) return (unsigned short)(sign | unsigned(std::nearbyint(size * 0x1p24f)));
  unsigned bits = __float_as_uint(size) - (112u << 23);
  return (unsigned short)(sign | (bits + 0xfffu + (bits >> 13 & 1)) >> 13);
}
