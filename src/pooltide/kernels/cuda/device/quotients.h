// The quotients of averages.
//
//     CHAINED  1: divides by the lengths on d, h and w in turn; 0: by their product, and never gives -0
//     BY_D, BY_H, BY_W   0: that length is 1 in all windows (CHAINED)
//     UNIFORM  1: all windows have the same divisors: p.divisor_d, p.divisor_h and p.divisor_w, or p.divisor_d alone;
//              0: they follow the spans in p.tables
//     SMALL    1: the product of three divisors is a number that a Sum holds exactly
//     EXACT    1: all divisors are powers of two, and p.divisor_d, … are their reciprocals, which gives the same bits
#pragma once

__device__ __forceinline__ Sum quotient(Sum sum, Sum by) {
#if EXACT
  return sum * by;  // a reciprocal
#elif ELEMENT == 1
  return __ddiv_rn(sum, by);
#else
  return __fdiv_rn(sum, by);
#endif
}

// The average of window (od, oh, ow) from its sum.
__device__ __forceinline__ Element divided(const Parameters &p, Sum sum, int od, int oh, int ow) {
#if UNIFORM
  const Sum by_d = (Sum)p.divisor_d, by_h = (Sum)p.divisor_h, by_w = (Sum)p.divisor_w;
#else
  const int *table = p.tables + 2 * (p.Do + p.Ho + p.Wo);
  const int d = table[od], h = table[p.Do + oh], w = table[p.Do + p.Ho + ow];
#if CHAINED
  const Sum by_d = (Sum)d, by_h = (Sum)h, by_w = (Sum)w;
#elif SMALL
  const Sum by_d = (Sum)d * (Sum)h * (Sum)w;
#else
  const Sum by_d = (Sum)((i64)d * h * w);
#endif
#endif
#if CHAINED
  if (BY_D) sum = quotient(sum, by_d);
  if (BY_H) sum = quotient(sum, by_h);
  if (BY_W) sum = quotient(sum, by_w);
  return narrow(sum);
#else
  return narrow(quotient(sum, by_d) + (Sum)0);
#endif
}
