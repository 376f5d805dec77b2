// Gradients of maxima with any indices: each index is compared with the size of the plane. An index outside the
// plane is skipped and reported.
//
//     image[indices[q, c], c] += grad[q, c]
//
// float32 and float64 are summed in the result itself, half types in a float32 image in the scratch buffer. An
// image is a plane, or in channels-last order some channels of a batch element. A unit is an image.

#pragma once

#include "indices.h"

namespace pooltide {
namespace {

// Returns how many channels are scattered together. The sums of half types must fit the cache.
inline int64_t channel_block(const Problem& p) {
  if (!p.channels_last) return 1;
  int64_t block = p.itemsize() == 2 ? (int64_t{1} << 16) / (p.cells() + 1) : p.channels / (p.batch < 4 ? 4 : 1);
  if (block >= kMostLanes) block -= block % kMostLanes;
  else block = p.itemsize() == 2 ? larger(block, 1) : kMostLanes;
  return smaller(block, larger(p.channels, 1));
}

template <class S> class ScatterAny {
  using T = typename Sum<S>::T;
  static constexpr int64_t L = lanes<S>, kPiece = 512;
  static constexpr bool kHalf = sizeof(S) < sizeof(T);

 public:
  static int64_t units(const Problem& p) {
    int64_t block = channel_block(p);
    return p.channels_last ? p.batch * ((p.channels + block - 1) / block) : p.planes();
  }
  int64_t scratch() const { return carve_.used(); }

  ScatterAny(const Problem& p, const Arrays& arrays, void* scratch)
      : p_(p), arrays_(arrays), channels_(p.channels_last ? p.channels : 1), carve_(scratch) {
    block_ = channel_block(p);
    sums_ = carve_.take<T>(kHalf ? p.cells() * block_ + L : 0);
    converted_ = carve_.take<T>(larger(block_, kPiece) + L);
    decoded_ = carve_.take<int64_t>(larger(block_, kPiece));
  }

  void begin() {}

  void run(int64_t begin, int64_t end, Fault& fault) {
    int64_t per_image = (channels_ + block_ - 1) / block_;
    for (int64_t unit = begin; unit < end; unit++) {
      int64_t c = unit % per_image * block_;
      scatter_block(unit / per_image, c, smaller(block_, channels_ - c), fault);
    }
  }

 private:
  // Scatters n channels, from channel c on.
  void scatter_block(int64_t image, int64_t c, int64_t n, Fault& fault) {
    S* out = (S*)arrays_.out + image * p_.cells() * channels_ + c;
    T* sums = kHalf ? sums_ : (T*)(void*)out;
    bool all = n == channels_;
    int64_t step = kHalf ? n : channels_, windows = all ? larger(1, kPiece / n) : 1, cells = p_.cells();
    for (int64_t i = 0; i < (all ? 1 : cells); i++) memset((void*)(sums + i * step), 0, (all ? cells : 1) * n * sizeof(T));
    for (int64_t q = 0; q < p_.windows(); q += windows) {
      int64_t first = (image * p_.windows() + q) * channels_ + c, count = smaller(windows, p_.windows() - q);
      const T* g = widened((const S*)arrays_.grad + first, count * n, converted_, channels_);
      const int64_t* cell = decoded(first, q, count, n);
      for (int64_t k = 0; k < count; k++)
        for (int64_t i = 0; i < n; i++, g++, cell++) {
          if (__builtin_expect((uint64_t)*cell < (uint64_t)cells, 1)) sums[*cell * step + i] += *g;
          else fault.add((image * channels_ + c + i) * p_.windows() + q + k, *cell);
        }
    }
    if (!kHalf) return;
    if (all) round(sums, cells * n, out);
    else for (int64_t i = 0; i < cells; i++) round(sums + i * n, n, out + i * channels_);
  }

  // Returns the cells that the indices of some windows name. `at` is the position of the first index.
  const int64_t* decoded(int64_t at, int64_t q, int64_t windows, int64_t n) {
    if (p_.index_bytes == 8) return (const int64_t*)arrays_.indices + at;
    if (p_.index_bytes == 1) decode_offsets(p_, (const uint8_t*)arrays_.indices + at, q, windows, n, decoded_);
    else for (int64_t i = 0; i < windows * n; i++) decoded_[i] = ((const int32_t*)arrays_.indices)[at + i];
    return decoded_;
  }

  // Rounds n sums. Other channels may follow in memory, so nothing is written beyond.
  static void round(const T* sums, int64_t n, S* out) {
    int64_t i = 0;
    for (; i + L <= n; i += L) store(out + i, load(sums + i));
    if (i < n) store_part(out + i, load(sums + i), n - i);
  }

  const Problem& p_;
  const Arrays& arrays_;
  int64_t channels_;
  Carve carve_;
  int64_t block_;
  T *sums_, *converted_;
  int64_t* decoded_;
};

}  // namespace
}  // namespace pooltide
