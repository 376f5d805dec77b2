// Gradients of maxima, channels-last, by scattering: each window adds its channels to the cells that they name.
//
//     image[indices[q, c], c] += grad[q, c]
//
// float32 and float64 are summed in the result itself. Half types are summed in a float32 scratch buffer, a
// block of channels at a time. A unit is a block of channels of one image.

#pragma once

#include "../simd/scratch.h"
#include "indices.h"

namespace pooltide {
namespace {

// Returns how many channels are scattered together. The sums of half types must fit the cache.
inline int64_t channel_block(const Problem& p) {
  int64_t block = p.itemsize() == 2 ? (int64_t{1} << 16) / (p.cells() + 1) : p.channels / (p.batch < 4 ? 4 : 1);
  if (block >= kMostLanes) block -= block % kMostLanes;
  else block = p.itemsize() == 2 ? larger(block, 1) : kMostLanes;
  return smaller(block, larger(p.channels, 1));
}

template <class S, class I> class ScatterChannels {
  using T = typename Sum<S>::T;
  static constexpr int64_t L = lanes<S>;
  static constexpr bool kHalf = sizeof(S) < sizeof(T);

 public:
  static int64_t units(const Problem& p) {
    int64_t block = channel_block(p);
    return p.batch * ((p.channels + block - 1) / block);
  }
  int64_t scratch() const { return carve_.used(); }

  ScatterChannels(const Problem& p, const Arrays& arrays, void* scratch) : p_(p), arrays_(arrays), carve_(scratch) {
    block_ = channel_block(p);
    sums_ = carve_.take<T>(kHalf ? p.cells() * block_ + L : 0);
    converted_ = carve_.take<T>(block_ + L);
    decoded_ = carve_.take<int64_t>(block_);
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    int64_t per_image = (p_.channels + block_ - 1) / block_;
    for (int64_t unit = begin; unit < end; unit++) {
      int64_t image = unit / per_image, c = unit % per_image * block_, n = smaller(block_, p_.channels - c);
      scatter_block(image, c, n, fault);
    }
  }

 private:
  S* out(int64_t image, int64_t c) const { return (S*)arrays_.out + image * p_.cells() * p_.channels + c; }
  int64_t position(int64_t image, int64_t q, int64_t c) const { return (image * p_.windows() + q) * p_.channels + c; }

  void scatter_block(int64_t image, int64_t c, int64_t n, Fault& fault) {
    T* sums = kHalf ? sums_ : (T*)(void*)out(image, c);
    int64_t step = kHalf ? n : p_.channels;
    for (int64_t i = 0; i < p_.cells(); i++) memset((void*)(sums + i * step), 0, n * sizeof(T));
    for (int64_t q = 0; q < p_.windows(); q++) {
      const T* g = widen(image, q, c, n);
      const int64_t* cell = decode(image, q, c, n);
      for (int64_t i = 0; i < n; i++) {
        if (__builtin_expect((uint64_t)cell[i] < (uint64_t)p_.cells(), 1)) {
          sums[cell[i] * step + i] += g[i];
        } else {
          fault.add((image * p_.channels + c + i) * p_.windows() + q, cell[i]);
        }
      }
    }
    if (kHalf) write_cells(sums, p_.cells(), n, out(image, c));
  }

  const T* widen(int64_t image, int64_t q, int64_t c, int64_t n) {
    return widened((const S*)arrays_.grad + position(image, q, c), n, converted_, p_.channels);
  }

  // Returns the cells that the indices of window q name, in the channels c … c + n - 1.
  const int64_t* decode(int64_t image, int64_t q, int64_t c, int64_t n) {
    const I* indices = (const I*)arrays_.indices + position(image, q, c);
    if constexpr (sizeof(I) == 8) {
      return indices;
    } else if constexpr (sizeof(I) == 4) {
      for (int64_t i = 0; i < n; i++) decoded_[i] = indices[i];
    } else {
      int64_t corner = row_start(p_, q / p_.w.windows) + p_.w.start[q % p_.w.windows];
      for (int64_t i = 0; i < n; i++) decoded_[i] = corner + p_.jump[indices[i]];
    }
    return decoded_;
  }

  // The channels of the next block follow in memory, so nothing may be written beyond n channels.
  void write_cells(const T* sums, int64_t cells, int64_t n, S* out) const {
    for (int64_t cell = 0; cell < cells; cell++, sums += n, out += p_.channels) {
      int64_t i = 0;
      for (; i + L <= n; i += L) store(out + i, load(sums + i));
      if (i < n) store_part(out + i, load(sums + i), n - i);
    }
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  int64_t block_;
  T *sums_, *converted_;
  int64_t* decoded_;
};

}  // namespace
}  // namespace pooltide
