// Permutes a row of quotients, so that each lane holds a quotient of its cell.
//
// Input: the tables `first` and `count` of one vector of cells, a row of quotients q, and a number j. Output: a
// vector; lane i is q[first[i] + j], the quotient of the j-th window of cell i, or +0 if j >= count[i].
// `first` must grow by 0 or 1 per lane: then one vector of q holds all these quotients. `fast` is true if the
// instruction set permutes the vector in registers; the fallback reads lane by lane.

#pragma once

#include "lanes.h"

namespace pooltide {
namespace {

template <class T> class Pick {
 public:
  static constexpr bool fast = false;
  Pick(const int32_t* first, const int32_t* count) : first_(first), count_(count) {}
  typename Lanes<T>::V operator()(const T* q, int32_t j) const {
    T found[Lanes<T>::n];
    for (int i = 0; i < Lanes<T>::n; i++) found[i] = j < count_[i] ? q[first_[i] + j] : 0;
    return load(found);
  }

 private:
  const int32_t *first_, *count_;
};

#if defined(__AVX512F__)
template <> class Pick<float> {
 public:
  static constexpr bool fast = true;
  Pick(const int32_t* first, const int32_t* count)
      : base_(*first), lane_(_mm512_sub_epi32(read<__m512i>(first), _mm512_set1_epi32(*first))),
        count_(read<__m512i>(count)) {}
  F32 operator()(const float* q, int32_t j) const {
    __mmask16 inside = _mm512_cmpgt_epi32_mask(count_, _mm512_set1_epi32(j));
    return (F32)_mm512_maskz_permutexvar_ps(inside, lane_, read<__m512>(q + base_ + j));
  }

 private:
  int64_t base_;
  __m512i lane_, count_;
};
template <> class Pick<double> {
 public:
  static constexpr bool fast = true;
  Pick(const int32_t* first, const int32_t* count)
      : base_(*first),
        lane_(_mm512_cvtepi32_epi64(_mm256_sub_epi32(read<__m256i>(first), _mm256_set1_epi32(*first)))),
        count_(_mm512_cvtepi32_epi64(read<__m256i>(count))) {}
  F64 operator()(const double* q, int32_t j) const {
    __mmask8 inside = _mm512_cmpgt_epi64_mask(count_, _mm512_set1_epi64(j));
    return (F64)_mm512_maskz_permutexvar_pd(inside, lane_, read<__m512d>(q + base_ + j));
  }

 private:
  int64_t base_;
  __m512i lane_, count_;
};
#elif defined(__AVX2__)
template <> class Pick<float> {
 public:
  static constexpr bool fast = true;
  Pick(const int32_t* first, const int32_t* count)
      : base_(*first), lane_(_mm256_sub_epi32(read<__m256i>(first), _mm256_set1_epi32(*first))),
        count_(read<__m256i>(count)) {}
  F32 operator()(const float* q, int32_t j) const {
    __m256i inside = _mm256_cmpgt_epi32(count_, _mm256_set1_epi32(j));
    __m256 moved = _mm256_permutevar8x32_ps(read<__m256>(q + base_ + j), lane_);
    return (F32)_mm256_and_ps(moved, _mm256_castsi256_ps(inside));
  }

 private:
  int64_t base_;
  __m256i lane_, count_;
};
#endif

}  // namespace
}  // namespace pooltide
