// Lanes in which two keys are equal: gradients are added in these lanes only.
//
// A key is an index in 32 bits, or a one-byte offset. There is a key for each lane of a vector of sums.

#pragma once

#include "lanes.h"

namespace pooltide {
namespace {

// Lanes as wide as T: -1 where keys are equal, else 0. AVX-512 has a bit per lane instead.
template <class T> using EqualLanes = typename Lanes<T>::I;

#if defined(__AVX512F__)
template <class T> struct Equal;
template <> struct Equal<float> {
  __mmask16 bits;
  Equal(const int32_t* p, EqualLanes<float> wanted) : bits(_mm512_cmpeq_epi32_mask(read<__m512i>(p), (__m512i)wanted)) {}
  Equal(const int32_t* p, int32_t wanted) : bits(_mm512_cmpeq_epi32_mask(read<__m512i>(p), _mm512_set1_epi32(wanted))) {}
  Equal(const uint8_t* p, int32_t wanted) : bits(_mm_cmpeq_epi8_mask(read<__m128i>(p), _mm_set1_epi8((char)wanted))) {}
  void clear(int64_t first) { bits = (__mmask16)(bits & 0xFFFFu << first); }
  F32 add(F32 sum, F32 g) const { return (F32)_mm512_mask_add_ps((__m512)sum, bits, (__m512)sum, (__m512)g); }
  EqualLanes<float> count(EqualLanes<float> n) const {
    return (EqualLanes<float>)_mm512_mask_add_epi32((__m512i)n, bits, (__m512i)n, _mm512_set1_epi32(1));
  }
};
#else
// As many keys as a vector of sums has lanes.
template <class T> struct KeyVectors;
template <> struct KeyVectors<float> {
  typedef int32_t Indices __attribute__((vector_size(kVectorBytes)));
  typedef uint8_t Offsets __attribute__((vector_size(kVectorBytes / 4)));
};

template <class T> struct Equal {
  using V = typename Lanes<T>::V;
  using E = EqualLanes<T>;
  E lanes;

  Equal(const int32_t* p, E wanted) : lanes((E)(read<E>(p) == wanted)) {}
  Equal(const int32_t* p, int32_t wanted) : Equal(read<typename KeyVectors<T>::Indices>(p), wanted) {}
  Equal(const uint8_t* p, int32_t wanted) : Equal(read<typename KeyVectors<T>::Offsets>(p), wanted) {}
  template <class K> Equal(K keys, int32_t wanted) : lanes((E)(__builtin_convertvector(keys, E) == E{} + wanted)) {}
  void clear(int64_t first) {
    for (int64_t i = 0; i < first; i++) lanes[i] = 0;
  }
  V add(V sum, V g) const { return sum + (V)((E)g & lanes); }  // no sum is -0, so that adding +0 does not change it
  E count(E n) const { return n - lanes; }
};
#endif

}  // namespace
}  // namespace pooltide
