// Gradients of maxima, plane by plane: zero a plane, then add each gradient where its index says, in
// ascending order of windows.
//
//     plane[indices[q]] += grad[q]
//
// A one-byte index is an offset inside the window q: its cell is the window's first cell + jump[offset].
//
// float32 and float64 are summed in place. Half types are summed in a float32 plane in scratch memory that
// stays in the cache and is zero between planes. Three ways to bring its cells to the result:
//
//     disjoint   no cell is in two windows: gradients are copied as they are, and nothing is summed
//     sparse     windows are few: the result is zeroed, and the named cells are visited one by one
//     pieces     cells leave the scratch plane as soon as no later index names them
//
// Indices are compared with the size of the plane, in 64 bits, before they are used.

#pragma once

#include "../problem.h"
#include "../simd/lanes.h"
#include "../simd/scratch.h"
#include "../simd/sink.h"

namespace pooltide {
namespace {

template <class I> struct Decoded { using Type = I; };
template <> struct Decoded<uint8_t> { using Type = int64_t; };

template <class I> struct Unsigned { using Type = uint64_t; };
template <> struct Unsigned<int32_t> { using Type = uint32_t; };
template <> struct Unsigned<uint8_t> { using Type = uint8_t; };

// The first cell of the plane in row (d, h) of windows.
inline int64_t row_start(const Problem& p, int64_t row) {
  int64_t d = p.d.start[row / p.h.windows], h = p.h.start[row % p.h.windows];
  return (d * p.h.cells + h) * p.w.cells;
}

// Gradients as they are summed: half types are converted to `to`, while elements `ahead` are prefetched.
template <class S, class T> inline const T* widened(const S* grad, int64_t n, T* to, int64_t ahead) {
  if constexpr (sizeof(S) == sizeof(T)) {
    return (const T*)grad;
  } else {
    int64_t i = 0;
    for (; i + lanes<S> <= n; i += lanes<S>) {
      __builtin_prefetch(grad + i + ahead);
      store(to + i, load(grad + i));
    }
    if (i < n) store(to + i, load_part(grad + i, n - i));
    return to;
  }
}

// Of a piece of windows: the least cell that it or a later one names; whether its indices are good.
struct Piece {
  int64_t least;
  bool inside;
};

enum class Scatter { in_place, disjoint, sparse, pieces };

// One thread's work, with indices of type I. A unit is a plane.
template <class S, class I> class ScatterPlanes {
  using T = typename Sum<S>::T;
  using Place = typename Decoded<I>::Type;  // of a cell in its plane
  static constexpr int64_t L = lanes<S>, kStep = 2 * L, kPiece = 512;
  static constexpr bool kNarrow = sizeof(S) < sizeof(T);

 public:
  ScatterPlanes(const Problem& p, const Arrays& arrays, Scatter way, void* block)
      : p_(p), arrays_(arrays), carve_(block), way_(way) {
    int64_t held = by_plane() ? larger(p.windows(), kPiece) : kPiece;
    sums_ = carve_.take<T>(kNarrow ? p.cells() + 2 * L : 0);
    converted_ = carve_.take<T>(held + L);
    packed_ = carve_.take<S>(way == Scatter::sparse ? held + L : 0);
    places_ = carve_.take<Place>(p.index_bytes == 1 && by_plane() ? held : 0);
    pieces_ = carve_.take<Piece>(p.windows() / kPiece + 2);
    stage_ = carve_.take<S>(stage());
  }

  int64_t scratch() const { return carve_.used(); }

  // Must be called before the first run of a call.
  void begin() {
    if (kNarrow) memset((void*)sums_, 0, (p_.cells() + 2 * L) * sizeof(T));
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    int64_t cells = p_.cells();
    S* out = (S*)arrays_.out;
    if (!kNarrow) {
      for (int64_t plane = begin; plane < end; plane++) in_place(plane, (T*)(void*)(out + plane * cells), fault);
      return;
    }
    Sink<S> sink(out + begin * cells, out + end * cells, stage_, stage(), arrays_.stream);
    for (int64_t plane = begin; plane < end; plane++) {
      if (way_ == Scatter::disjoint && one_each(plane, sink)) continue;
      look_ahead(plane);
      if (way_ != Scatter::sparse || !one_by_one(plane, sink)) in_pieces(plane, sink, fault);
    }
    sink.finish();
  }

 private:
  bool by_plane() const { return way_ == Scatter::disjoint || way_ == Scatter::sparse; }
  int64_t stage() const {
    return Sink<S>::staging(by_plane() ? larger(p_.cells(), kPiece) : kPiece, arrays_.tight ? 0 : 16384);
  }

  void in_place(int64_t plane, T* sums, Fault& fault) {
    memset((void*)sums, 0, p_.cells() * sizeof(T));
    for (int64_t k = 0; k * kPiece < p_.windows(); k++) scatter(plane, k, sums, fault);
  }

  void in_pieces(int64_t plane, Sink<S>& sink, Fault& fault) {
    int64_t emitted = 0;
    for (int64_t from = 0, k = 0; from < p_.windows(); from += kPiece) {
      scatter(plane, k, sums_, fault);
      emit(emitted, pieces_[++k].least / kStep * kStep, sink);
    }
    emit(emitted, p_.cells(), sink);
  }

  // Copies gradients to the cells that they name; -0 becomes +0, as 0 + -0 is. Returns false, with nothing
  // committed, if an index is bad or if two indices name one cell.
  bool one_each(int64_t plane, Sink<S>& sink) {
    if constexpr (kNarrow) {
      int64_t cells = p_.cells(), n = p_.windows();
      const S* g = (const S*)arrays_.grad + plane * n;
      const Place* at = decode(plane, 0, n);
      S* to = sink.room(cells, 0);
      memset((void*)to, 0, cells * sizeof(S));
      uint16_t taken = 0;
      for (int64_t i = 0; i < n; i++) {
        if ((uint64_t)(int64_t)at[i] >= (uint64_t)cells) return false;
        taken |= to[at[i]].bits;
        to[at[i]].bits = g[i].bits == 0x8000 ? 0 : g[i].bits;
      }
      if (taken == 0) sink.commit(to, cells);
      return taken == 0;
    }
    return false;
  }

  // Sums in the scratch plane, then visits the named cells again. Returns false, with nothing committed, if
  // an index is bad.
  bool one_by_one(int64_t plane, Sink<S>& sink) {
    int64_t cells = p_.cells(), n = p_.windows();
    const Place* at = decode(plane, 0, n);
    for (int64_t k = 0; k * kPiece < n; k++)
      if (!inside(k, at + k * kPiece, smaller(kPiece, n - k * kPiece))) return false;
    add(widen((const S*)arrays_.grad + plane * n, n), at, n, sums_);
    for (int64_t i = 0; i < n; i++) converted_[i] = sums_[at[i]];
    for (int64_t i = 0; i < n; i += L) store(packed_ + i, load(converted_ + i));
    S* to = sink.room(cells, 0);
    memset((void*)to, 0, cells * sizeof(S));
    for (int64_t i = 0; i < n; i++) to[at[i]] = packed_[i], sums_[at[i]] = 0;
    sink.commit(to, cells);
    return true;
  }

  // Reads all indices of a plane before one is used. Finds, for each piece of windows, whether its indices
  // are inside the plane, and the least cell that it or a later piece names. Prefetches the next plane's.
  void look_ahead(int64_t plane) {
    int64_t windows = p_.windows(), pieces = 0;
    for (int64_t from = 0; from < windows; from += kPiece, pieces++) {
      Piece& piece = pieces_[pieces];
      int64_t n = smaller(kPiece, windows - from);
      if constexpr (sizeof(I) == 1) {
        piece = {least_place(from, n), false};  // `inside` is found when they are scattered
      } else {
        piece = look_at((const I*)arrays_.indices + plane * windows + from, n, windows);
      }
    }
    pieces_[pieces] = {p_.cells(), true};
    for (int64_t k = pieces; k-- > 0;) pieces_[k].least = smaller(pieces_[k].least, pieces_[k + 1].least);
  }

  // No window begins before its row of windows. Rows need not ascend, because dilation may step over padding.
  int64_t least_place(int64_t from, int64_t n) const {
    int64_t row = from / p_.w.windows, last = (from + n - 1) / p_.w.windows, least = row_start(p_, row);
    while (row < last) least = smaller(least, row_start(p_, ++row));
    return least;
  }

  // The sign of i or of last - i is set where i is bad; all indices are read, without a branch.
  Piece look_at(const Place* at, int64_t n, int64_t ahead) const {
    using U = typename Unsigned<Place>::Type;
    typedef Place Many __attribute__((vector_size(kBytes)));
    typedef U Words __attribute__((vector_size(kBytes)));
    constexpr int64_t each = kBytes / sizeof(Place);
    constexpr U sign = U{1} << (8 * sizeof(U) - 1);
    const U last = (U)smaller(p_.cells() - 1, (int64_t)(sign - 1));
    Place least = at[0];
    U signs = 0;
    int64_t i = 0;
    if (n >= each && (kBytes > 16 || sizeof(Place) == 4)) {  // SSE2 can't compare 64 bits
      Many low = read<Many>(at);
      Words bad{};
      for (; i + each <= n; i += each) {
        __builtin_prefetch(at + i + ahead);
        Many v = read<Many>(at + i);
        low = v < low ? v : low;
        bad |= (Words)v | (last - (Words)v);
      }
      for (int64_t k = 0; k < each; k++) least = low[k] < least ? low[k] : least, signs |= bad[k];
    }
    for (; i < n; i++) least = at[i] < least ? at[i] : least, signs |= (U)at[i] | (last - (U)at[i]);
    return {least, !(signs & sign)};
  }

  static void add(const T* g, const Place* at, int64_t n, T* sums) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; i++) sums[at[i]] += g[i];
  }

  bool inside(int64_t piece, const Place* at, int64_t n) const {
    if (!kNarrow) return false;  // a branch for each index costs less than to read them twice
    return sizeof(I) == 1 ? look_at(at, n, 0).inside : pieces_[piece].inside;
  }

  // Adds a piece of windows; bad indices are left out and reported.
  void scatter(int64_t plane, int64_t piece, T* sums, Fault& fault) {
    int64_t from = piece * kPiece, windows = p_.windows();
    int64_t n = smaller(kPiece, windows - from), first = plane * windows + from;
    const T* g = widen((const S*)arrays_.grad + first, n);
    if constexpr (sizeof(I) == 1) {
      scatter_offsets(first, from, n, g, sums, fault);
    } else {
      const I* at = (const I*)arrays_.indices + first;
      if (inside(piece, at, n)) return add(g, at, n, sums);
      const uint64_t cells = p_.cells();
      for (int64_t i = 0; i < n; i++) {
        if (__builtin_expect((uint64_t)(int64_t)at[i] < cells, 1)) {
          sums[at[i]] += g[i];
        } else {
          fault.add(first + i, at[i]);
        }
      }
    }
  }

  // The same for offsets, a part of a row of windows at a time. Jumps ascend up to the last offset that
  // windows have: where the largest stays in the plane, all stay in it.
  void scatter_offsets(int64_t first, int64_t from, int64_t n, const T* g, T* sums, Fault& fault) {
    const uint8_t* offset = (const uint8_t*)arrays_.indices + first;
    const int64_t* jump = p_.jump;
    for (int64_t i = 0; i < n;) {
      int64_t row = (from + i) / p_.w.windows, ow = from + i - row * p_.w.windows, corner = row_start(p_, row);
      int64_t end = smaller(n, i + p_.w.windows - ow);
      const int32_t* start = p_.w.start + ow - i;
      uint8_t most = 0;
      int32_t farthest = 0;
      for (int64_t k = i; k < end; k++) {
        most = offset[k] > most ? offset[k] : most;
        farthest = start[k] > farthest ? start[k] : farthest;
      }
      if (jump[most] >= 0 && corner + farthest + jump[most] < p_.cells()) {
        T* cells = sums + corner;
#pragma GCC unroll 4
        for (; i < end; i++) cells[start[i] + jump[offset[i]]] += g[i];
        continue;
      }
      for (; i < end; i++) {
        int64_t at = corner + start[i] + jump[offset[i]];
        if ((uint64_t)at < (uint64_t)p_.cells()) sums[at] += g[i];
        else fault.add(first + i, at);
      }
    }
  }

  const Place* decode(int64_t plane, int64_t from, int64_t n) {
    const I* indices = (const I*)arrays_.indices + plane * p_.windows() + from;
    if constexpr (sizeof(I) == 1) {
      for (int64_t i = 0; i < n;) {
        int64_t row = (from + i) / p_.w.windows, ow = from + i - row * p_.w.windows;
        int64_t corner = row_start(p_, row), end = smaller(n, i + p_.w.windows - ow);
        for (; i < end; i++, ow++) places_[i] = corner + p_.w.start[ow] + p_.jump[indices[i]];
      }
      return places_;
    } else {
      return indices;
    }
  }

  const T* widen(const S* grad, int64_t n) { return widened(grad, n, converted_, p_.windows()); }

  // Writes the cells up to `end` to the result and zeroes them in the scratch plane.
  void emit(int64_t& from, int64_t end, Sink<S>& sink) {
    while (from < end) {
      int64_t n = smaller(kPiece, end - from);
      S* to = sink.room(n);
      T* sums = sums_ + from;
      for (int64_t i = 0; i < n; i += kStep) {
        write(to + i, two(S{}, load(sums + i), load(sums + i + L)));
        store(sums + i, typename Lanes<T>::V{}), store(sums + i + L, typename Lanes<T>::V{});
      }
      sink.commit(to, n);
      from += n;
    }
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  const Scatter way_;
  T *sums_, *converted_;
  S *packed_, *stage_;
  Place* places_;
  Piece* pieces_;
};

}  // namespace
}  // namespace pooltide
