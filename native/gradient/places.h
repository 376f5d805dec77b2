// Converts indices to positions in a ring buffer of sums, one vector of indices at a time.
//
// Input: the indices of some windows, and the range of cells that the indices may name. Output: for each index, its
// place, which is the position of its sum in the ring; `find_places` returns false if an index is outside the range.
// A separate loop converts the indices, because a single loop that checks an index, computes the address and adds
// the gradient takes two to three times as many instructions.

#pragma once

#include "../simd/lanes.h"

namespace pooltide {
namespace {

// Wide is a vector of indices, Unsigned the same vector with unsigned lanes, and Narrow a vector with the same number
// of lanes, of 32 bits each.
template <class I> struct IndexVector;
template <> struct IndexVector<int64_t> {
  using Wide = Lanes<double>::I;
  typedef uint64_t Unsigned __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t Narrow __attribute__((vector_size(kVectorBytes / 2)));
};
template <> struct IndexVector<int32_t> {
  using Wide = Lanes<float>::I;
  using Unsigned = U32;
  using Narrow = U32;
};

template <class V> inline bool any_negative(V v) {
#if defined(__AVX512F__)
  if constexpr (sizeof v[0] == 8) return _mm512_movepi64_mask((__m512i)v);
  else return _mm512_movepi32_mask((__m512i)v);
#elif defined(__AVX2__)
  if constexpr (sizeof v[0] == 8) return _mm256_movemask_pd((__m256d)v);
  else return _mm256_movemask_ps((__m256)v);
#else
  auto all = v[0];
  for (unsigned i = 1; i < sizeof v / sizeof v[0]; i++) all |= v[i];
  return all < 0;
#endif
}

// A ring of sums: cell c has its sums from (c * step + shift) & mask on.
struct Ring {
  uint32_t step, shift, mask;
};

// Writes places[i], the position of the sum of element i: (index[i] * step + channels[i] + shift) & mask, with the
// fields of `ring`. Returns false if an index is not in the range from … to - 1.
template <class I>
inline bool find_places(const I* index, const uint32_t* channels, int64_t n, I from, I to, const Ring& ring, uint32_t* places) {
  using Wide = typename IndexVector<I>::Wide;
  using Unsigned = typename IndexVector<I>::Unsigned;
  using Narrow = typename IndexVector<I>::Narrow;
  constexpr int64_t kLanes = sizeof(Wide) / sizeof(I), kAhead = 4096 / sizeof(I);
  const Unsigned first = Unsigned{} + (decltype(Unsigned{}[0] + 0))from, last = first + (decltype(Unsigned{}[0] + 0))(to - 1 - from);
  const Ring r = ring;
  Unsigned outside{};  // has its highest bit set where a cell is before the first or after the last one
  bool inside = true;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    __builtin_prefetch(index + i + kAhead);
    Wide cell = read<Wide>(index + i);
    outside |= ((Unsigned)cell - first) | (last - (Unsigned)cell);
    Narrow place = __builtin_convertvector(cell, Narrow);
    if (r.step > 1) place *= r.step;
    write(places + i, (place + read<Narrow>(channels + i) + r.shift) & r.mask);
  }
  for (; i < n; i++) {
    inside = inside && index[i] >= from && index[i] < to;
    places[i] = ((uint32_t)index[i] * r.step + channels[i] + r.shift) & r.mask;
  }
  return inside && !any_negative((Wide)outside);
}

}  // namespace
}  // namespace pooltide
