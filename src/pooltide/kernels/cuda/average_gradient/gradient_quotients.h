// Divides a gradient by the divisor of its window.
//
//     ONCE   not 0: divide once, by the product of the divisors. ONCE is HOW of `quotient`. BY_D is 0 if all divisors
//            of the d axis are 1. BY_H and BY_W are not used
//            0: divide by the divisors of d, h and w in turn; BY_D, BY_H and BY_W are HOW of `quotient` for each axis
#pragma once

#include "division.h"

struct Divisors {
  Sum d, rd, h, rh, w, rw;  // of one window: each axis' divisor and its reciprocal
};

__device__ __forceinline__ Sum divided(Sum g, const Divisors &by) {
  if (ONCE) {
    Sum d = by.h * by.w, r = by.rh * by.rw;
    if (BY_D) {
      d = by.d * d;
      r = by.rd * r;
    }
    return quotient<ONCE>(g, d, r);
  }
  return quotient<BY_W>(quotient<BY_H>(quotient<BY_D>(g, by.d, by.rd), by.h, by.rh), by.w, by.rw);
}
