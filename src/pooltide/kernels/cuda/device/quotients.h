// The quotients of averages.
//
//     CHAINED  1: divides by the lengths on d, h and w in turn; 0: by their product, and never gives -0
//     BY_D, BY_H, BY_W   0: that length is 1 in all windows
//     UNIFORM  1: all windows have the same divisors: p.divisor_d, p.divisor_h and p.divisor_w, or p.divisor_d alone;
//              0: they follow the spans in p.tables
//     SMALL    1: the product of three divisors is a number that a Sum holds exactly
//     DIVISION  HOW of division.h; 4 unless UNIFORM. p.reciprocal_d, … are the reciprocals of p.divisor_d, …
#pragma once

#include "division.h"

// What the sum of a window is divided by on each axis; ones if UNIFORM.
struct Divisors {
  int d, h, w;
};

__device__ __forceinline__ int divisor_d(const Parameters &p, int od) {
  return !UNIFORM && BY_D ? p.tables[2 * (p.Do + p.Ho + p.Wo) + od] : 1;
}
__device__ __forceinline__ int divisor_h(const Parameters &p, int oh) {
  return !UNIFORM && BY_H ? p.tables[2 * (p.Do + p.Ho + p.Wo) + p.Do + oh] : 1;
}
__device__ __forceinline__ int divisor_w(const Parameters &p, int ow) {
  return !UNIFORM && BY_W ? p.tables[2 * (p.Do + p.Ho + p.Wo) + p.Do + p.Ho + ow] : 1;
}

__device__ __forceinline__ Element divided(const Parameters &p, Sum sum, const Divisors &by) {
#if UNIFORM
  const Sum by_d = (Sum)p.divisor_d, by_h = (Sum)p.divisor_h, by_w = (Sum)p.divisor_w;
#elif CHAINED
  const Sum by_d = (Sum)by.d, by_h = (Sum)by.h, by_w = (Sum)by.w;
#elif SMALL
  const Sum by_d = (Sum)by.d * (Sum)by.h * (Sum)by.w;
#else
  const Sum by_d = (Sum)((i64)by.d * by.h * by.w);
#endif
#if CHAINED
  if (BY_D) sum = quotient<DIVISION>(sum, by_d, (Sum)p.reciprocal_d);
  if (BY_H) sum = quotient<DIVISION>(sum, by_h, (Sum)p.reciprocal_h);
  if (BY_W) sum = quotient<DIVISION>(sum, by_w, (Sum)p.reciprocal_w);
  return narrow(sum);
#else
  return narrow(quotient<DIVISION>(sum, by_d, (Sum)p.reciprocal_d) + (Sum)0);
#endif
}

// The average of window (od, oh, ow) from its sum.
__device__ __forceinline__ Element divided(const Parameters &p, Sum sum, int od, int oh, int ow) {
  const Divisors by = {divisor_d(p, od), divisor_h(p, oh), divisor_w(p, ow)};
  return divided(p, sum, by);
}
