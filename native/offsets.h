// Gradients by offsets: a cell sums the gradients of those windows that hold it and point at it.
//
//     out[cell] = sum over its windows q, ascending, of grad[q] where offset[q] is the cell's in q
//
// Offsets are the forward's own, so a window never points elsewhere and nothing need be scattered: each
// cell is written once, from registers. In channels-last order a vector holds channels. In planes it
// holds cells of a row, `stride` apart: their windows are neighbours, and they have one offset in
// them. The cells of a row are u = stride * m + phase in the padded row; cell u is the tap phase +
// stride * t of window m - t. A row of windows is widened once for all rows of cells that it holds.

#pragma once

#include "average.h"

namespace pooltide {
namespace {

// sum + g in those lanes whose offset is `code`.
template <class V, class I> inline V add_where(V sum, I offset, I code, V g) {
#if defined(__AVX512F__)
  if constexpr (sizeof(code[0]) == 4) {
    __mmask16 hit = _mm512_cmpeq_epi32_mask((__m512i)offset, (__m512i)code);
    return (V)_mm512_mask_add_ps((__m512)sum, hit, (__m512)sum, (__m512)g);
  } else {
    __mmask8 hit = _mm512_cmpeq_epi64_mask((__m512i)offset, (__m512i)code);
    return (V)_mm512_mask_add_pd((__m512d)sum, hit, (__m512d)sum, (__m512d)g);
  }
#else
  return sum + (V)((I)g & (I)(offset == code));
#endif
}

// The windows (d, h) that hold a row of cells, ascending, with the offset of the row's first tap in them.
template <class F> inline void for_rows_of_windows(const Problem& p, int64_t d, int64_t h, F use) {
  for (int64_t i = p.d.begin[d]; i < p.d.begin[d + 1]; i++)
    for (int64_t j = p.h.begin[h]; j < p.h.begin[h + 1]; j++)
      use(p.d.window[i] * p.h.windows + p.h.window[j], (p.d.tap[i] * p.h.side + p.h.tap[j]) * p.w.side);
}

template <class S> class PlanesByOffsets {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  using Int = IntOf<T>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>, kPiece = 1024, kSlots = 8;

 public:
  static int64_t scratch(const Problem& p) { return PlanesByOffsets(p, Arrays(), nullptr).carve_.used(); }

  PlanesByOffsets(const Problem& p, const Arrays& arrays, void* block)
      : p_(p), arrays_(arrays), carve_(block), pad_(-p.w.start[0]), taps_((p.w.side - 1) / p.w_stride) {
    int64_t steps = (p.w.cells + pad_ + p.w_stride - 1) / p.w_stride;
    piece_ = smaller(kPiece, steps), pieces_ = (steps + piece_ - 1) / piece_;
    slot_ = taps_ + piece_ + 2 * L;
    for (int i = 0; i < kSlots; i++) tags_[i] = -1;
    grads_ = carve_.template take<T>(kSlots * slot_);
    offsets_ = carve_.template take<Int>(kSlots * slot_);
    for (T*& line : lines_) line = carve_.template take<T>(piece_ + 2 * L);
    stage_n_ = Sink<S>::staging(2 * piece_ + 2 * L);
    stage_ = carve_.template take<S>(stage_n_);
  }

  // A unit is a row of cells.
  void run(int64_t begin, int64_t end) {
    S* out = (S*)arrays_.out;
    Sink<S> sink(out + begin * p_.w.cells, out + end * p_.w.cells, stage_, stage_n_, arrays_.stream);
    for (int64_t row = begin; row < end; row++)
      for (int64_t piece = 0; piece < pieces_; piece++) {
        p_.w_stride == 1 ? sums<1>(row, piece) : sums<2>(row, piece);
        emit(piece, sink);
      }
    sink.finish();
  }

 private:
  template <int stride> void sums(int64_t row, int64_t piece) {
    switch (p_.w.side) {
      case 2: return sums_of<stride, 2>(row, piece);
      case 3: return sums_of<stride, 3>(row, piece);
      default: return sums_of<stride, 0>(row, piece);
    }
  }

  // The phases' sums of a piece of a row; windows have `known` cells a side, or 0: who knows.
  template <int stride, int known> void sums_of(int64_t row, int64_t piece) {
    int64_t h = row % p_.h.cells, d = row / p_.h.cells % p_.d.cells, plane = row / p_.h.cells / p_.d.cells;
    bool first = true;
    for_rows_of_windows(p_, d, h, [&](int64_t windows, int64_t code) {
      int64_t at = widened(plane * p_.d.windows * p_.h.windows + windows, piece) + taps_;
      first ? add<stride, known, true>(at, code) : add<stride, known, false>(at, code);
      first = false;
    });
    if (!first) return;
    for (int phase = 0; phase < stride; phase++) memset((void*)lines_[phase], 0, (piece_ + L) * sizeof(T));
  }

  template <int stride, int known, bool first> void add(int64_t at, int64_t code) {
    int64_t side = known ? known : p_.w.side;
    const T* grad = grads_ + at;
    const Int* offsets = offsets_ + at;
    for (int64_t m = 0; m < piece_; m += L)
#pragma GCC unroll 2
      for (int phase = 0; phase < stride; phase++) {
        V sum = first ? V{} : load(lines_[phase] + m);
#pragma GCC unroll 3
        for (int64_t t = (side - 1 - phase + stride) / stride - 1; t >= 0; t--)
          sum = add_where(sum, read<I>(offsets + m - t), (Int)(code + phase + t * stride) - I{}, load(grad + m - t));
        store(lines_[phase] + m, sum);
      }
  }

  // Where the windows of a row are that hold cells of a piece: zeros, where there are none.
  int64_t widened(int64_t row, int64_t piece) {
    int64_t tag = row * pieces_ + piece, slot = tag % kSlots, at = slot * slot_;
    if (tags_[slot] == tag) return at;
    tags_[slot] = tag;
    int64_t least = piece * piece_ - taps_, from = larger(0, least);
    int64_t n = larger(0, smaller(p_.w.windows, piece * piece_ + piece_) - from), skip = from - least;
    T* grads = grads_ + at;
    Int* offsets = offsets_ + at;
    memset((void*)grads, 0, slot_ * sizeof(T));
    memset((void*)offsets, 0, slot_ * sizeof(Int));
    const S* g = (const S*)arrays_.grad + row * p_.w.windows + from;
    const uint8_t* o = (const uint8_t*)arrays_.indices + row * p_.w.windows + from;
    int64_t i = 0;
    for (; i + L <= n; i += L) store(grads + skip + i, load(g + i));
    if (i < n) store(grads + skip + i, load_part(g + i, n - i));
    for (i = 0; i < n; i++) offsets[skip + i] = o[i];
    return at;
  }

  // The cells of a piece that are no padding.
  void emit(int64_t piece, Sink<S>& sink) {
    int64_t stride = p_.w_stride, u = piece * piece_ * stride;
    int64_t from = larger(pad_ - u, 0), n = smaller(piece_ * stride, p_.w.cells + pad_ - u) - from;
    if (n <= 0) return;
    S* to = sink.room(n + L);
    if (stride == 1) {
      for (int64_t i = 0; i < n; i += L) store(to + i, load(lines_[0] + from + i));
    } else {
      const T *even = lines_[from % 2] + from / 2, *odd = lines_[1 - from % 2] + (from + 1) / 2;
      for (int64_t i = 0; i < n; i += 2 * L) write(to + i, interleaved(S{}, load(even + i / 2), load(odd + i / 2)));
    }
    sink.commit(to, n);
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  int64_t pad_, taps_;  // cells of the first window before the row; windows before m that may hold a cell
  int64_t piece_, pieces_, slot_, stage_n_;
  int64_t tags_[kSlots];
  T *grads_, *lines_[2];
  Int* offsets_;
  S* stage_;
};

template <class S> class ChannelsByOffsets {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  using Int = IntOf<T>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>;
  using Bytes = typename Places<T>::Bytes;

 public:
  static int64_t scratch(const Problem& p) { return ChannelsByOffsets(p, Arrays(), nullptr).carve_.used(); }

  ChannelsByOffsets(const Problem& p, const Arrays& arrays, void* block) : p_(p), arrays_(arrays), carve_(block) {
    stage_n_ = Sink<S>::staging(kMostChannels);
    stage_ = carve_.template take<S>(stage_n_);
  }

  // A unit is a row of cells, all channels of them.
  void run(int64_t begin, int64_t end) {
    int64_t row = p_.w.cells * p_.channels;
    S* out = (S*)arrays_.out;
    Sink<S> sink(out + begin * row, out + end * row, stage_, stage_n_, arrays_.stream);
    for (int64_t unit = begin; unit < end; unit++) {
      int64_t h = unit % p_.h.cells, d = unit / p_.h.cells % p_.d.cells, image = unit / p_.h.cells / p_.d.cells;
      for (int64_t w = 0; w < p_.w.cells; w++)
        for (int64_t c = 0; c < p_.channels; c += kMostChannels) {
          int64_t n = smaller(kMostChannels, p_.channels - c);
          S* to = sink.room(n);
          cell(image, d, h, w, c, n, to);
          sink.commit(to, n);
        }
    }
    sink.finish();
  }

 private:
  static constexpr int64_t kMostChannels = 1024;

  void cell(int64_t image, int64_t d, int64_t h, int64_t w, int64_t c, int64_t n, S* to) const {
    for (int64_t i = 0; i < n; i += L) {
      int64_t part = smaller(L, n - i);
      V sum{};
      for_rows_of_windows(p_, d, h, [&](int64_t windows, int64_t code) {
        int64_t row = (image * p_.d.windows * p_.h.windows + windows) * p_.w.windows;
        for (int64_t k = p_.w.begin[w]; k < p_.w.begin[w + 1]; k++) {
          int64_t at = (row + p_.w.window[k]) * p_.channels + c + i;
          const S* g = (const S*)arrays_.grad + at;
          const uint8_t* o = (const uint8_t*)arrays_.indices + at;
          I wanted = (Int)(code + p_.w.tap[k]) - I{};
          sum = part == L ? add_where(sum, __builtin_convertvector(read<Bytes>(o), I), wanted, load(g))
                          : add_where(sum, few(o, part), wanted, load_part(g, part));
        }
      });
      store(to + i, sum);
    }
  }

  static I few(const uint8_t* o, int64_t n) {
    uint8_t bytes[L] = {};
    memcpy(bytes, o, n);
    return __builtin_convertvector(read<Bytes>(bytes), I);
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  int64_t stage_n_;
  S* stage_;
};

}  // namespace
}  // namespace pooltide
