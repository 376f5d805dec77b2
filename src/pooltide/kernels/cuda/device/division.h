// Division with the bits of IEEE, in few instructions where the divisor allows it.
#pragma once

#if ELEMENT != 1
// Not inlined: it is called seldom, and a thread has up to 90 quotients.
static __device__ __noinline__ float divide_small(float g, float d) { return __fdiv_rn(g, d); }
#endif

// g / d as IEEE rounds it, where r is 1/d rounded. HOW: 0 d = 1; 1 d is a power of two; 2 d is odd or a power
// of two, below 2^20; 3 d is below 2^20; 4 d is any number.
// For 2 and 3: r is within 2 ulp of 1/d, so the remainder g − q·d is exact, and q + (g − q·d)·r is g/d but for 2^-21
// ulp. g/d is never that near to a rounding boundary without lying on it. It lies on a boundary only if d is even and
// g/d is subnormal; so 3 divides very small g in the usual way. (No IEEE half but 0 is so small.) e is the
// negative remainder, so that −0 stays −0; the maximum replaces the NaN that an infinite g leaves in e.
template <int HOW>
__device__ __forceinline__ Sum quotient(Sum g, Sum d, Sum r) {
  if (HOW == 1) return g * r;
#if ELEMENT != 1
  if (HOW == 2 || HOW == 3) {
    if (HOW == 3 && ELEMENT != 2 && fabsf(g) < 7.888609052210118e-31f && g != 0) return divide_small(g, d);  // 2^-100
    Sum q = __fmul_rn(g, r);
    Sum e = fmaxf(__fmaf_rn(q, d, -g), -3.4028234663852886e38f);
    return __fmaf_rn(-e, r, q);
  }
  if (HOW == 4) return __fdiv_rn(g, d);
#else
  if (HOW >= 2) return g / d;
#endif
  return g;
}

// The reciprocal of d for `quotient`. The GPU's own reciprocal is off by 1 ulp at most. After one step it is off by 2^-22
// ulp, and is then rounded; so it is exact if d is a power of two, and r is what `quotient` needs for other d.
template <int HOW>
__device__ __forceinline__ Sum reciprocal(Sum d) {
#if ELEMENT != 1 && defined(__CUDACC_RTC__)
  if (HOW == 4) return d;  // is not used
  Sum r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return __fmaf_rn(__fmaf_rn(-d, r, 1), r, r);
#else
  return 1 / d;
#endif
}
