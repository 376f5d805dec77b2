// Indexed: zero a plane, then add each gradient where its index says, in ascending order.
//
//     plane[indices[q]] += grad[q]
//
// An index of one byte is an offset in the window q: its cell is the window's first, plus jump[offset].
//
// Half types, and planes bound for memory beyond the cache, are summed in a scratch plane that stays
// in the cache; the others in place. An index is compared in 64 bits before it is used.

#pragma once

#include "average.h"

namespace pooltide {
namespace {

template <class S, class I> class Indexed {
  using T = typename Sum<S>::T;
  static constexpr int64_t L = lanes<S>, kPiece = 1024;
  static constexpr bool kNarrow = sizeof(S) < sizeof(T);

 public:
  static int64_t scratch(const Problem& p) { return Indexed(p, Arrays(), nullptr).carve_.used(); }

  Indexed(const Problem& p, const Arrays& arrays, void* block) : p_(p), arrays_(arrays), carve_(block) {
    int64_t planes = p.channels_last ? channel_block(p) : 1;
    sums_ = carve_.take<T>(staged() ? p.cells() * planes + L : 0);
    converted_ = carve_.take<T>(kPiece + L);
    stage_ = carve_.take<S>(Sink<S>::staging(kPiece));
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    p_.channels_last ? blocks(begin, end, fault) : planes(begin, end, fault);
  }

 private:
  bool staged() const { return kNarrow || (!p_.channels_last && p_.cells() * (int64_t)sizeof(T) <= (1 << 19)); }

  void planes(int64_t begin, int64_t end, Fault& fault) {
    int64_t cells = p_.cells(), windows = p_.windows();
    bool through = kNarrow || (arrays_.stream && staged());
    S* out = (S*)arrays_.out;
    Sink<S> sink(out + begin * cells, out + end * cells, stage_, Sink<S>::staging(kPiece), arrays_.stream);
    for (int64_t i = begin; i < end; i++) {
      T* sums = through ? sums_ : (T*)(void*)(out + i * cells);
      memset((void*)sums, 0, cells * sizeof(T));
      scatter((const S*)arrays_.grad + i * windows, (const I*)arrays_.indices + i * windows, i * windows,
              sums, fault);
      if (through) emit(sums, cells, sink);
    }
    if (through) sink.finish();
  }

  void scatter(const S* grad, const I* indices, int64_t position, T* sums, Fault& fault) {
    uint64_t cells = p_.cells();
    for (int64_t from = 0, windows = p_.windows(); from < windows; from += kPiece) {
      int64_t n = smaller(kPiece, windows - from);
      const T* g = widen(grad + from, n);
      auto add = [&](int64_t i, int64_t index) {
        if (__builtin_expect((uint64_t)index < cells, 1)) {
          sums[index] += g[i];
        } else {
          fault.add(position + from + i, index);
        }
      };
      if constexpr (sizeof(I) == 1) {
        for (int64_t i = 0; i < n;) {
          int64_t row = (from + i) / p_.w.windows, ow = from + i - row * p_.w.windows;
          int64_t corner = row_start(row), end = smaller(n, i + p_.w.windows - ow);
          for (; i < end; i++, ow++) add(i, corner + p_.w.start[ow] + p_.jump[indices[from + i]]);
        }
      } else {
        for (int64_t i = 0; i < n; i++) add(i, indices[from + i]);
      }
    }
  }

  // The first cell of the plane in the rows of windows (d, h).
  int64_t row_start(int64_t row) const {
    int64_t d = p_.d.start[row / p_.h.windows], h = p_.h.start[row % p_.h.windows];
    return (d * p_.h.cells + h) * p_.w.cells;
  }

  const T* widen(const S* grad, int64_t n) {
    if (!kNarrow) return (const T*)(const void*)grad;
    int64_t i = 0;
    for (; i + L <= n; i += L) store(converted_ + i, load(grad + i));
    if (i < n) store(converted_ + i, load_part(grad + i, n - i));
    return converted_;
  }

  static void emit(const T* sums, int64_t cells, Sink<S>& sink) {
    for (int64_t from = 0; from < cells; from += kPiece) {
      int64_t n = smaller(kPiece, cells - from);
      S* to = sink.room(n);
      for (int64_t i = 0; i < n; i += L) store(to + i, load(sums + from + i));
      sink.commit(to, n);
    }
  }

  // A unit is a block of channels of one image.
  void blocks(int64_t begin, int64_t end, Fault& fault) {
    int64_t block = channel_block(p_), per_image = (p_.channels + block - 1) / block;
    for (int64_t unit = begin; unit < end; unit++) {
      int64_t image = unit / per_image, c = unit % per_image * block;
      int64_t n = smaller(block, p_.channels - c);
      S* out = (S*)arrays_.out + image * p_.cells() * p_.channels + c;
      T* sums = kNarrow ? sums_ : (T*)(void*)out;
      int64_t step = kNarrow ? n : p_.channels;
      for (int64_t i = 0; i < p_.cells(); i++) memset((void*)(sums + i * step), 0, n * sizeof(T));
      scatter_channels(image, c, n, sums, step, fault);
      if (kNarrow) emit_channels(sums, n, out);
    }
  }

  void scatter_channels(int64_t image, int64_t c, int64_t n, T* sums, int64_t step, Fault& fault) {
    uint64_t cells = p_.cells();
    int64_t windows = p_.windows();
    for (int64_t q = 0; q < windows; q++) {
      int64_t at = (image * windows + q) * p_.channels + c;
      const I* indices = (const I*)arrays_.indices + at;
      int64_t corner = sizeof(I) > 1 ? 0 : row_start(q / p_.w.windows) + p_.w.start[q % p_.w.windows];
      for (int64_t from = 0; from < n; from += kPiece) {
        int64_t m = smaller(kPiece, n - from);
        const T* g = widen((const S*)arrays_.grad + at + from, m);
        for (int64_t i = 0; i < m; i++) {
          int64_t index = sizeof(I) > 1 ? (int64_t)indices[from + i] : corner + p_.jump[(uint8_t)indices[from + i]];
          if (__builtin_expect((uint64_t)index < cells, 1)) {
            sums[index * step + from + i] += g[i];
          } else {
            fault.add((image * p_.channels + c + from + i) * windows + q, index);
          }
        }
      }
    }
  }

  // Channels of other blocks lie behind each cell's: nothing may be written too much.
  void emit_channels(const T* sums, int64_t n, S* out) const {
    for (int64_t cell = 0; cell < p_.cells(); cell++) {
      const T* from = sums + cell * n;
      S* to = out + cell * p_.channels;
      int64_t i = 0;
      for (; i + L <= n; i += L) store(to + i, load(from + i));
      if (i < n) store_part(to + i, load(from + i), n - i);
    }
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  T *sums_, *converted_;
  S* stage_;
};

}  // namespace
}  // namespace pooltide
