// The largest cell of a window, and where it is.
//
//     the first of equal cells wins; a NaN is larger than every number, and the last NaN wins
//
// This rule is associative: parts of a window may be compared separately, if it is known which part comes first.
// A cell may be taken twice, if no later cell was taken between.
#pragma once

#define LOWEST (-(Sum)__int_as_float(0x7f800000))  // minus infinity

#if ELEMENT == 2
#define LOWEST_ELEMENT ((Element)0xfc00)
#elif ELEMENT == 3
#define LOWEST_ELEMENT ((Element)0xff80)
#else
#define LOWEST_ELEMENT LOWEST
#endif

// PLACED: a Best knows its place, an index in the plane or an offset in the window.
#if defined(INDEX) && !defined(PLACED)
#define PLACED
#endif

struct Best {
  Sum value;
#ifdef PLACED
  int place;
#endif
};

__device__ __forceinline__ Best best_of(Sum value, int place) {
  Best best;
  best.value = value;
#ifdef PLACED
  best.place = place;
#endif
  return best;
}

// Takes a value that comes after the best one so far, if it wins.
__device__ __forceinline__ void take(Best &best, Sum value, int place) {
  const bool wins = value > best.value || value != value;
  best.value = wins ? value : best.value;
#ifdef PLACED
  best.place = wins ? place : best.place;
#endif
}

// Takes the best of later cells, whose places count from `from`.
__device__ __forceinline__ void take(Best &best, const Best &later, int from) {
#ifdef PLACED
  take(best, later.value, later.place + from);
#else
  take(best, later.value, 0);
#endif
}

#ifdef PLACED
// Takes the best of other cells, which may come before or after; both places count from the same cell.
__device__ __forceinline__ void take_either(Best &best, const Best &other) {
  const bool later = other.place > best.place, number = other.value == other.value;
  const bool equal = number ? other.value == best.value && !later : best.value == best.value || later;
  const bool wins = other.value > best.value || equal;
  best.value = wins ? other.value : best.value;
  best.place = wins ? other.place : best.place;
}
#endif

// The larger one of two values; a NaN if one of them is.
__device__ __forceinline__ Sum larger(Sum a, Sum b) {
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 800 && ELEMENT != 1
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
#else
  return b > a || b != b ? b : a;
#endif
}

// The first of the largest values of an array, or the last NaN: `count` values, `step` apart. Returns its number.
template <class Step>
__device__ __forceinline__ int best_number(const Element *values, int count, Step step, Sum &best) {
  int number = 0;
  best = widen(values[0]);
#pragma unroll 4
  for (int i = 1; i < count; ++i) {
    const Sum value = widen(values[i * step]);
    const bool wins = value > best || value != value;
    best = wins ? value : best, number = wins ? i : number;
  }
  return number;
}
