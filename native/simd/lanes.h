// Vectors of the instruction set that this source is compiled for: load, store, convert, permute.
//
// `load` converts a storage type (float, double, Half, Bfloat) to the type of its sums (float or double),
// `pack` rounds sums to the storage type, and `store` packs and writes.
// The kernels are compiled once per instruction set. They are in an unnamed namespace and use nothing of the
// C++ library, because the linker could share such a function between a newer and an older set.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

// For the parts of inner loops: -O2 would call some of them.
#define POOLTIDE_INLINE inline __attribute__((always_inline))

namespace pooltide {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

struct Half { uint16_t bits; };
struct Bfloat { uint16_t bits; };

template <class T> struct Lanes;
template <> struct Lanes<float> {
  static constexpr int n = kVectorBytes / 4;
  typedef float V __attribute__((vector_size(kVectorBytes)));
  typedef int32_t I __attribute__((vector_size(kVectorBytes)));
};
template <> struct Lanes<double> {
  static constexpr int n = kVectorBytes / 8;
  typedef double V __attribute__((vector_size(kVectorBytes)));
  typedef int64_t I __attribute__((vector_size(kVectorBytes)));
};
typedef uint32_t U32 __attribute__((vector_size(kVectorBytes)));
typedef uint16_t U16 __attribute__((vector_size(kVectorBytes / 2)));
using F32 = Lanes<float>::V;
using F64 = Lanes<double>::V;

template <class S> struct Sum { using T = float; };
template <> struct Sum<double> { using T = double; };

template <class V> POOLTIDE_INLINE V read(const void* from) {
  V v;
  memcpy(&v, from, sizeof v);
  return v;
}
template <class V> POOLTIDE_INLINE void write(void* to, V v) { memcpy(to, &v, sizeof v); }

POOLTIDE_INLINE F32 load(const float* p) { return read<F32>(p); }
POOLTIDE_INLINE F64 load(const double* p) { return read<F64>(p); }
POOLTIDE_INLINE F32 load(const Bfloat* p) {
#if defined(__AVX512F__)
  return (F32)_mm512_slli_epi32(_mm512_cvtepu16_epi32(read<__m256i>(p)), 16);
#elif defined(__AVX2__)
  return (F32)_mm256_slli_epi32(_mm256_cvtepu16_epi32(read<__m128i>(p)), 16);
#else
  return (F32)(__builtin_convertvector(read<U16>(p), U32) << 16);
#endif
}

// Returns the sums v, rounded to the storage type of the first argument.
inline F32 pack(float, F32 v) { return v; }
inline F64 pack(double, F64 v) { return v; }
#if defined(__AVX512F__)
// The result is in the upper 16 bits of each lane; the lower 16 bits are undefined.
inline __m512i round_bfloat(F32 v) {
  __m512i bits = (__m512i)v, odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(up, nan, _mm512_set1_epi32(0x7FC00000));
}
#endif
POOLTIDE_INLINE U16 pack(Bfloat, F32 v) {
#if defined(__AVX512F__)
  return (U16)_mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bfloat(v), 16));
#else
  U32 u = (U32)v;
  U32 nan = (U32)(v != v);
  U32 rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16;
  U32 quiet = (u >> 16) | 0x40;
  return __builtin_convertvector((rounded & ~nan) | (quiet & nan), U16);
#endif
}

#if defined(__AVX512F__)
POOLTIDE_INLINE F32 load(const Half* p) { return (F32)_mm512_cvtph_ps(read<__m256i>(p)); }
POOLTIDE_INLINE U16 pack(Half, F32 v) { return (U16)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT); }
#elif defined(__AVX2__) && defined(__F16C__)
POOLTIDE_INLINE F32 load(const Half* p) { return (F32)_mm256_cvtph_ps(read<__m128i>(p)); }
POOLTIDE_INLINE U16 pack(Half, F32 v) { return (U16)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT); }
#else
// Exponents move by 112 = 127 - 15; a float32 multiplication does that, and normalises subnormals.
POOLTIDE_INLINE F32 load(const Half* p) {
  U32 h = __builtin_convertvector(read<U16>(p), U32);
  U32 magnitude = (h & 0x7FFF) << 13;
  F32 scaled = (F32)magnitude * 0x1p112f;
  U32 special = (U32)((h & 0x7C00) == 0x7C00);
  U32 bits = ((U32)scaled & ~special) | ((magnitude | 0x7F800000) & special);
  return (F32)(bits | (h & 0x8000) << 16);
}
// Normal results round by an integer addition; for subnormal ones adding 0.5 lets the FPU align
// the mantissa to 2^-24 and round it.
POOLTIDE_INLINE U16 pack(Half, F32 v) {
  U32 u = (U32)v, sign = (u >> 16) & 0x8000, m = u & 0x7FFFFFFF;
  U32 normal = (m + 0xFFF + ((m >> 13) & 1) - (112u << 23)) >> 13;
  U32 subnormal = (U32)((F32)m + 0.5f) - 0x3F000000;
  U32 small = (U32)(m < 0x38800000u), large = (U32)(m >= 0x477FF000u), nan = (U32)(m > 0x7F800000u);
  U32 h = (normal & ~small) | (subnormal & small);
  h = (h & ~large) | (0x7C00 & large);
  h = (h & ~nan) | ((0x7E00 | ((m >> 13) & 0x1FF)) & nan);
  return __builtin_convertvector(h | sign, U16);
}
#endif

template <class S> using VecOf = typename Lanes<typename Sum<S>::T>::V;
template <class S> using PackedOf = decltype(pack(S{}, VecOf<S>{}));
template <class S> constexpr int lanes = Lanes<typename Sum<S>::T>::n;

template <class S> POOLTIDE_INLINE void store(S* p, VecOf<S> v) { write(p, pack(S{}, v)); }

template <int... i> struct Order {};
template <int n, int... i> struct UpToN : UpToN<n - 1, n - 1, i...> {};
template <int... i> struct UpToN<0, i...> { using All = Order<i...>; };
template <int n> using UpTo = typename UpToN<n>::All;

// Returns a0 b0 a1 b1 …, from the lower (half = 0) or upper (half = 1) halves of a and b.
template <int n, int half, class V, int... i> inline V zip(V a, V b, Order<i...>) {
  return __builtin_shufflevector(a, b, (i % 2 * n + half * n / 2 + i / 2)...);
}

// Two packed vectors. `pack_two` packs neighbouring vectors, `pack_interleaved` those of the even and odd cells.
template <class P> struct PackedPair { P low, high; };
template <class P> inline void write(void* to, PackedPair<P> v) {
  write(to, v.low);
  write((char*)to + sizeof(P), v.high);
}
template <class S> inline PackedPair<PackedOf<S>> pack_two(S, VecOf<S> low, VecOf<S> high) {
  return {pack(S{}, low), pack(S{}, high)};
}
template <class S> inline PackedPair<PackedOf<S>> pack_interleaved(S, VecOf<S> even, VecOf<S> odd) {
  constexpr int n = lanes<S>;
  PackedOf<S> a = pack(S{}, even), b = pack(S{}, odd);
  return {zip<n, 0>(a, b, UpTo<n>()), zip<n, 1>(a, b, UpTo<n>())};
}
#if defined(__AVX512F__)
template <int... i> inline __m512i upper_halves(__m512i low, __m512i high, Order<i...>) {
  typedef uint16_t Halves __attribute__((vector_size(64)));
  return (__m512i)__builtin_shufflevector((Halves)low, (Halves)high, (2 * i + 1)...);
}
inline __m512i pack_two(Bfloat, F32 low, F32 high) { return upper_halves(round_bfloat(low), round_bfloat(high), UpTo<32>()); }
inline __m512i pack_interleaved(Bfloat, F32 even, F32 odd) {
  return _mm512_mask_mov_epi16(_mm512_srli_epi32(round_bfloat(even), 16), 0xAAAAAAAA, round_bfloat(odd));
}
#endif

// Vectors of which only the first `n` elements exist in memory. `load_part` sets the others to 0.
template <class S> inline VecOf<S> load_part(const S* p, int64_t n) {
  S padded[lanes<S>] = {};
  memcpy(padded, p, n * sizeof(S));
  return load(padded);
}
#if defined(__AVX512F__)
inline void write_part(void* to, F32 v, int64_t n) { _mm512_mask_storeu_ps(to, (1u << n) - 1, (__m512)v); }
inline void write_part(void* to, F64 v, int64_t n) { _mm512_mask_storeu_pd(to, (1u << n) - 1, (__m512d)v); }
inline void write_part(void* to, U16 v, int64_t n) { _mm256_mask_storeu_epi16(to, (1u << n) - 1, (__m256i)v); }
#else
template <class P> inline void write_part(void* to, P v, int64_t n) { memcpy(to, &v, n * sizeof v[0]); }
#endif
template <class S> inline void store_part(S* p, VecOf<S> v, int64_t n) { write_part(p, pack(S{}, v), n); }

template <class T> inline typename Lanes<T>::V splat(T x) { return x - typename Lanes<T>::V{}; }

// One number of a half type, in float32 and back.
#if defined(__F16C__)
inline float widen_one(Half x) { return _cvtsh_ss(x.bits); }
inline uint16_t round_one(Half, float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }
#else
inline float widen_one(Half x) { return load_part(&x, 1)[0]; }
inline uint16_t round_one(Half, float x) { return pack(Half{}, splat(x))[0]; }
#endif
inline float widen_one(Bfloat x) {
  uint32_t bits = (uint32_t)x.bits << 16;
  return read<float>(&bits);
}
inline uint16_t round_one(Bfloat, float x) {
  if (x != x) return pack(Bfloat{}, splat(x))[0];
  uint32_t bits = read<uint32_t>(&x);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Copies whole cache lines by non-temporal stores; `to` is aligned to a line.
inline void stream_lines(char* to, const char* from, int64_t bytes) {
#if defined(__SSE2__)
  for (int64_t i = 0; i < bytes; i += kVectorBytes) {
#if defined(__AVX512F__)
    _mm512_stream_si512((__m512i*)(to + i), read<__m512i>(from + i));
#elif defined(__AVX2__)
    _mm256_stream_si256((__m256i*)(to + i), read<__m256i>(from + i));
#else
    _mm_stream_si128((__m128i*)(to + i), read<__m128i>(from + i));
#endif
  }
#else
  memcpy(to, from, bytes);
#endif
}

inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// While it lives, the thread rounds to nearest and keeps subnormals. The caller may have set another mode:
// PyTorch can flush subnormals to zero.
class IeeeMode {
 public:
#if defined(__SSE2__)
  IeeeMode() : saved_(_mm_getcsr()) { if (changed()) _mm_setcsr(0x1F80); }
  ~IeeeMode() { if (changed()) _mm_setcsr(saved_); }
 private:
  bool changed() const { return (saved_ & 0xFFC0) != 0x1F80; }  // the low bits are sticky flags
  unsigned saved_;
#elif defined(__aarch64__)
  IeeeMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~IeeeMode() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
 private:
  uint64_t saved_;
#endif
};

}  // namespace
}  // namespace pooltide
