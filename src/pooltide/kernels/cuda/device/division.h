// Division with the bits of IEEE, in few instructions where the divisor allows it.
#pragma once

// g / d as IEEE rounds it, where r is 1/d rounded. HOW: 0 d = 1; 1 d is a power of two; 2 d is odd or a power
// of two, below 2^20; 3 d is any number.
// For 2: r is within 2 ulp of 1/d, so the remainder e = g − q·d is exact, and q + e·r is g/d but for 2^-21
// ulp. g/d is never that near to a rounding boundary without lying on it. The minimum replaces the NaN that
// an infinite g leaves in e.
template <int HOW>
__device__ __forceinline__ Sum quotient(Sum g, Sum d, Sum r) {
  if (HOW == 1) return g * r;
#if ELEMENT != 1
  if (HOW == 2) {
    Sum q = __fmul_rn(g, r);
    Sum e = fminf(__fmaf_rn(-q, d, g), 3.4028234663852886e38f);
    return __fmaf_rn(e, r, q);
  }
  if (HOW == 3) return __fdiv_rn(g, d);
#else
  if (HOW >= 2) return g / d;
#endif
  return g;
}
