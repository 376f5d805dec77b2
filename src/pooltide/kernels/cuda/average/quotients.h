// The quotients of averages.
//
//     CHAINED  1: divides by the lengths on d, h and w in turn; 0: by their product, and never gives -0
//     BY_D, BY_H, BY_W   0: that length is 1 in all windows
//     UNIFORM  1: all windows have the same divisors: p.divisor_d, p.divisor_h and p.divisor_w, or p.divisor_d alone,
//              with the reciprocals p.reciprocal_d, …; 0: they follow the spans in p.tables
//     SMALL    1: the product of three divisors is a number that a Sum holds exactly
//     DIVISION  HOW of division.h
#pragma once

#include "division.h"

// What the sum of a window is divided by: a divisor and its reciprocal for each axis if CHAINED, else d and rd alone.
struct Divisors {
  Sum d, h, w, rd, rh, rw;
};

// The divisors of an axis; 1 if UNIFORM.
__device__ __forceinline__ int divisor_d(const Parameters &p, int od) {
  return !UNIFORM && BY_D ? p.tables[2 * (p.Do + p.Ho + p.Wo) + od] : 1;
}
__device__ __forceinline__ int divisor_h(const Parameters &p, int oh) {
  return !UNIFORM && BY_H ? p.tables[2 * (p.Do + p.Ho + p.Wo) + p.Do + oh] : 1;
}
__device__ __forceinline__ int divisor_w(const Parameters &p, int ow) {
  return !UNIFORM && BY_W ? p.tables[2 * (p.Do + p.Ho + p.Wo) + p.Do + p.Ho + ow] : 1;
}

// The divisors of a window from those of its axes. Several sums may be divided by them.
__device__ __forceinline__ Divisors divisors_of(const Parameters &p, int d, int h, int w) {
#if UNIFORM
  const Divisors found = {(Sum)p.divisor_d,    (Sum)p.divisor_h,    (Sum)p.divisor_w,
                          (Sum)p.reciprocal_d, (Sum)p.reciprocal_h, (Sum)p.reciprocal_w};
#elif CHAINED
  const Sum by_d = (Sum)d, by_h = (Sum)h, by_w = (Sum)w;
  const Sum rd = reciprocal<DIVISION>(by_d), rh = reciprocal<DIVISION>(by_h), rw = reciprocal<DIVISION>(by_w);
  const Divisors found = {by_d, by_h, by_w, rd, rh, rw};
#else
#if SMALL
  const Sum by = (Sum)d * (Sum)h * (Sum)w;
#else
  const Sum by = (Sum)((i64)d * h * w);
#endif
  const Divisors found = {by, 1, 1, reciprocal<DIVISION>(by), 1, 1};
#endif
  return found;
}

__device__ __forceinline__ Sum divided(Sum sum, const Divisors &by) {
#if CHAINED
  if (BY_D) sum = quotient<DIVISION>(sum, by.d, by.rd);
  if (BY_H) sum = quotient<DIVISION>(sum, by.h, by.rh);
  if (BY_W) sum = quotient<DIVISION>(sum, by.w, by.rw);
  return sum;
#else
  return quotient<DIVISION>(sum, by.d, by.rd) + (Sum)0;
#endif
}

// The average of window (od, oh, ow) from its sum.
__device__ __forceinline__ Element divided(const Parameters &p, Sum sum, int od, int oh, int ow) {
  return narrow(divided(sum, divisors_of(p, divisor_d(p, od), divisor_h(p, oh), divisor_w(p, ow))));
}
