// Gradients of maxima in channels-last order, small windows: each cell adds the gradients whose indices name it.
//
//     out[c] = ((0 + g[1st window]) + g[2nd]) + …      windows q that hold cell c and have indices[q] == c
//
// A vector holds neighbouring channels. The indices of a window are compared with the cell, and only the lanes in
// which they are equal add the gradient. A cell looks at all windows that hold it, so this is fast if these are few;
// unlike a scatter it needs no sums in memory and writes every cell once, in ascending order.
//
// A window's index equals at most one of its cells. So if there are as many additions as windows, every index names
// a cell of its window. Fault::missing has the difference; if it is not 0 in the end, another kernel computes the
// problem. A unit is a row of cells with all its channels.

#pragma once

#include "../simd/equal.h"
#include "../simd/sink.h"
#include "indices.h"
#include "places.h"

namespace pooltide {
namespace {

// Writes n indices as int32; those that do not fit become numbers that name no cell.
inline void narrow_indices(const int64_t* from, int64_t n, int32_t* to) {
  using Wide = IndexVector<int64_t>::Wide;
  int64_t i = 0;
  for (; i + Lanes<double>::n <= n; i += Lanes<double>::n) {
    Wide wide = read<Wide>(from + i);
#if defined(__AVX512F__)
    write(to + i, _mm512_cvtsepi64_epi32((__m512i)wide));
#else
    write(to + i, __builtin_convertvector(wide | (Wide)(wide >> 31 != 0), IndexVector<int64_t>::Narrow));
#endif
  }
  for (; i < n; i++) to[i] = from[i] >> 31 ? -1 : (int32_t)from[i];
}

// A key is what is compared with a cell: an index in 32 bits, or a one-byte offset.
template <class S, class Key> class GatherChannels {
  using T = typename Sum<S>::T;
  using V = VecOf<S>;
  using Added = EqualLanes<T>;  // how many gradients were added, per lane
  static constexpr int64_t L = lanes<S>;
  static constexpr int kMost = kVectorBytes == 64 ? 8 : 4;  // vectors that are summed together
  static constexpr int64_t kSlices = 4 << 20;  // bytes of narrowed indices of several slices

  // A row of windows that hold cells of the current row of cells. `corner` is for one-byte offsets: the offset, inside
  // each of these windows, of the cell that is in the current row and in the first column of the window.
  struct Row {
    const Key* keys;
    const S* grad;
    int64_t corner;
  };

 public:
  static int64_t units(const Problem& p) { return p.batch * p.d.cells * p.h.cells; }
  int64_t scratch() const { return carve_.used(); }
  void begin() {}

  GatherChannels(const Problem& p, const Arrays& arrays, void* scratch)
      : p_(p), arrays_(arrays), carve_(scratch), stage_size_(Sink<S>::stage_size(p.channels, arrays.tight ? 0 : 16384)) {
    // In volumes, a row of windows is read again when the next slices are written.
    bool whole = p.d.most > 1 && !arrays.tight && p.d.most * p.h.windows * slot() * (int64_t)sizeof(Key) <= kSlices;
    per_slice_ = whole ? p.h.windows : p.h.most;
    int64_t slots = p.d.most * per_slice_;
    rows_ = carve_.take<Row>(p.d.most * p.h.most);
    tags_ = carve_.take<int64_t>(narrowed() ? slots : 0);
    keys_ = carve_.take<Key>(narrowed() ? slots * slot() : 0);
    stage_ = carve_.take<S>(stage_size_);
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    S* out = (S*)arrays_.out;
    int64_t row = p_.w.cells * p_.channels;
    Sink<S> sink(out + begin * row, out + end * row, stage_, stage_size_, arrays_.stream);
    for (int64_t i = 0; narrowed() && i < p_.d.most * per_slice_; i++) tags_[i] = -1;
    for (int64_t unit = begin; unit < end; unit++) write_row(unit, sink);
    sink.finish();
    fault.missing += missing_;
  }

 private:
  bool narrowed() const { return p_.index_bytes == 8; }  // keys are copies of the indices
  int64_t slot() const { return round_up(p_.w.windows * p_.channels, 64 / sizeof(Key)); }

  void write_row(int64_t unit, Sink<S>& sink) {
    int64_t h = unit % p_.h.cells, d = unit / p_.h.cells % p_.d.cells, image = unit / p_.h.cells / p_.d.cells;
    missing_ += begun(p_.d, d) * begun(p_.h, h) * p_.w.windows * p_.channels;
    list_rows(image, d, h);
    Added added{};
    int64_t cell = (d * p_.h.cells + h) * p_.w.cells, each = p_.w.windows * p_.channels / p_.w.cells + 1;
    for (int64_t w = 0; w < p_.w.cells; w++, cell++, next_ += each) {
      prefetch((const char*)arrays_.indices + next_ * p_.index_bytes, each * p_.index_bytes), prefetch((const S*)arrays_.grad + next_, each);
      S* to = sink.reserve(p_.channels);
      add_channels(cell, w, to, added);
      sink.commit(to, p_.channels);
    }
    for (int64_t i = 0; i < L; i++) missing_ -= added[i];
  }

  // The next row of windows is prefetched during the current one, a few elements with each cell.
  template <class X> static void prefetch(const X* from, int64_t n) {
    for (const char *p = (const char*)from, *end = (const char*)(from + n); p < end; p += 64) __builtin_prefetch(p);
  }

  // Returns how many windows begin at a cell.
  static int64_t begun(const Axis& axis, int64_t cell) {
    int64_t before = cell ? axis.first[cell - 1] + axis.count[cell - 1] : 0;
    return axis.first[cell] + axis.count[cell] - before;
  }

  // Lists the rows of windows that hold cells of row (d, h), in ascending order.
  void list_rows(int64_t image, int64_t d, int64_t h) {
    listed_ = 0;
    for (int64_t od = p_.d.first[d], od_end = od + p_.d.count[d]; od < od_end; od++)
      for (int64_t oh = p_.h.first[h], oh_end = oh + p_.h.count[h]; oh < oh_end; oh++) {
        int64_t row = (image * p_.d.windows + od) * p_.h.windows + oh, at = row * p_.w.windows * p_.channels;
        int64_t corner = ((d - p_.d.start[od]) * p_.h.longest + h - p_.h.start[oh]) * p_.w.longest;
        rows_[listed_++] = {keys(row, od % p_.d.most * per_slice_ + oh % per_slice_, at), (const S*)arrays_.grad + at, corner};
        next_ = at + p_.w.windows * p_.channels;
      }
  }

  // Returns the keys of a row of windows, whose indices begin at element `at`.
  const Key* keys(int64_t row, int64_t slot, int64_t at) {
    if (!narrowed()) return (const Key*)arrays_.indices + at;
    Key* to = keys_ + slot * this->slot();
    if constexpr (sizeof(Key) == 4)
      if (tags_[slot] != row) narrow_indices((const int64_t*)arrays_.indices + at, p_.w.windows * p_.channels, to);
    tags_[slot] = row;
    return to;
  }

  // Writes the sums of all channels of a cell.
  void add_channels(int64_t cell, int64_t w, S* to, Added& added) {
    int64_t c = 0, channels = p_.channels;
    for (; kMost == 8 && c + 8 * L <= channels; c += 8 * L) add_vectors<kMost>(cell, w, c, 0, to, added);
    for (; c + 4 * L <= channels; c += 4 * L) add_vectors<4>(cell, w, c, 0, to, added);
    if (c + 2 * L <= channels) add_vectors<2>(cell, w, c, 0, to, added), c += 2 * L;
    if (c + L <= channels) add_vectors<1>(cell, w, c, 0, to, added), c += L;
    if (c < channels) add_vectors<1>(cell, w, channels - L, c + L - channels, to, added);  // ends with the last channel
  }

  // Writes the sums of `vectors` vectors of channels, from channel c on. The last vector of a cell may overlap the
  // vector before it: then its first `again` lanes are computed again, but `added` must not count them again.
  template <int vectors>
  __attribute__((always_inline)) void add_vectors(int64_t cell, int64_t w, int64_t c, int64_t again, S* to, Added& added) {
    V sums[vectors] = {};
    for (const Row *row = rows_, *end = row + listed_; row < end; row++) {
      const int64_t first = p_.w.first[w], last = first + p_.w.count[w];
      for (int64_t o = first; o < last; o++) {
        const Key* key = row->keys + o * p_.channels + c;
        const S* g = row->grad + o * p_.channels + c;
        int32_t wanted = (int32_t)(sizeof(Key) == 1 ? row->corner + w - p_.w.start[o] : cell);
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
          Equal<T> equal(key + v * L, wanted);
          sums[v] = equal.add(sums[v], load(g + v * L));
          if (vectors == 1) equal.clear(again);
          added = equal.count(added);
        }
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) store(to + c + v * L, sums[v]);
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  Row* rows_;
  int64_t* tags_;
  Key* keys_;
  S* stage_;
  int64_t stage_size_, per_slice_, listed_ = 0, next_ = 0, missing_ = 0;  // per_slice_: rows of narrowed indices
};

}  // namespace
}  // namespace pooltide
