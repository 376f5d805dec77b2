// Gradients of maxima, channels-last, by scattering: each window adds a row of channels.
//
//     image[indices[q, c], c] += grad[q, c]
//
// Half types are summed in float32 in scratch memory, a block of channels at a time; the others in place.
// A unit is a block of channels of one image.

#pragma once

#include "scatter_planes.h"

namespace pooltide {
namespace {

// The channels that are scattered together: of half types, as many as keep their sums in the cache.
inline int64_t channel_block(const Problem& p) {
  int64_t block = p.itemsize() == 2 ? (int64_t{1} << 16) / (p.cells() + 1) : p.channels / (p.batch < 4 ? 4 : 1);
  if (block >= kMostLanes) block -= block % kMostLanes;
  else block = p.itemsize() == 2 ? larger(block, 1) : kMostLanes;
  return smaller(block, larger(p.channels, 1));
}

template <class S, class I> class ScatterChannels {
  using T = typename Sum<S>::T;
  static constexpr int64_t L = lanes<S>;
  static constexpr bool kNarrow = sizeof(S) < sizeof(T);

 public:
  static int64_t units(const Problem& p) {
    int64_t block = channel_block(p);
    return p.batch * ((p.channels + block - 1) / block);
  }
  int64_t scratch() const { return carve_.used(); }

  ScatterChannels(const Problem& p, const Arrays& arrays, void* block) : p_(p), arrays_(arrays), carve_(block) {
    block_ = channel_block(p);
    sums_ = carve_.take<T>(kNarrow ? p.cells() * block_ + L : 0);
    converted_ = carve_.take<T>(block_ + L);
    places_ = carve_.take<int64_t>(block_);
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    int64_t per_image = (p_.channels + block_ - 1) / block_;
    for (int64_t unit = begin; unit < end; unit++) {
      int64_t image = unit / per_image, c = unit % per_image * block_, n = smaller(block_, p_.channels - c);
      whole_planes(image, c, n, fault);
    }
  }

 private:
  S* out(int64_t image, int64_t c) const { return (S*)arrays_.out + image * p_.cells() * p_.channels + c; }
  int64_t at(int64_t image, int64_t q, int64_t c) const { return (image * p_.windows() + q) * p_.channels + c; }

  void whole_planes(int64_t image, int64_t c, int64_t n, Fault& fault) {
    T* sums = kNarrow ? sums_ : (T*)(void*)out(image, c);
    int64_t step = kNarrow ? n : p_.channels;
    for (int64_t i = 0; i < p_.cells(); i++) memset((void*)(sums + i * step), 0, n * sizeof(T));
    for (int64_t q = 0; q < p_.windows(); q++) {
      const T* g = widen(image, q, c, n);
      const int64_t* cell = places(image, q, c, n);
      for (int64_t i = 0; i < n; i++) {
        if (__builtin_expect((uint64_t)cell[i] < (uint64_t)p_.cells(), 1)) {
          sums[cell[i] * step + i] += g[i];
        } else {
          fault.add((image * p_.channels + c + i) * p_.windows() + q, cell[i]);
        }
      }
    }
    if (kNarrow) emit(sums, p_.cells(), n, out(image, c));
  }

  const T* widen(int64_t image, int64_t q, int64_t c, int64_t n) {
    return widened((const S*)arrays_.grad + at(image, q, c), n, converted_, p_.channels);
  }

  // The cells that a window's indices name, in the channels from c on.
  const int64_t* places(int64_t image, int64_t q, int64_t c, int64_t n) {
    const I* indices = (const I*)arrays_.indices + at(image, q, c);
    if constexpr (sizeof(I) == 8) {
      return indices;
    } else if constexpr (sizeof(I) == 4) {
      for (int64_t i = 0; i < n; i++) places_[i] = indices[i];
    } else {
      int64_t corner = row_start(p_, q / p_.w.windows) + p_.w.start[q % p_.w.windows];
      for (int64_t i = 0; i < n; i++) places_[i] = corner + p_.jump[indices[i]];
    }
    return places_;
  }

  // Other blocks' channels follow in each cell, so nothing may be written behind the block.
  void emit(const T* sums, int64_t cells, int64_t n, S* out) const {
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
  int64_t* places_;
};

}  // namespace
}  // namespace pooltide
