// Gradients of maxima in half types, windows that overlap little: each window compares its index with those of the
// windows before it, and writes the rounded sum of the gradients that name its cell.
//
//     image[indices[q, c], c] = sum of grad[r, c]      windows r <= q that overlap q and have indices[r, c] == indices[q, c]
//
// The last window that names a cell writes the whole sum, so no sums are kept in memory. A vector has neighbouring
// elements of a row of windows, in channels-last order with all channels. The rows that a later window may overlap
// are in a ring of slots: keys, which are indices in 32 bits, and gradients in float32. A key in its window equals no
// key of a window that does not overlap this window, so a vector may be compared with the same shifts of every row.
// Planes of few windows are joined: all windows of some planes form one row. Each window is compared with those before it
// at the distances at which windows may overlap. Keys then count the cells of all these planes.
// An index outside its window sets Fault::retry. scatter_layout.h explains image, slice and segment; a unit is a
// segment. In planes whose windows are disjoint, gradients are copied one by one; a cell that is not zero any more
// then sets Fault::retry.

#pragma once

#include "../simd/equal.h"
#include "compared_layout.h"
#include "indices.h"
#include "places.h"

namespace pooltide {
namespace {

// S is Half for both half types. I is the type of the indices; one-byte offsets are decoded to int64.
template <class S, class I> class ScatterCompared {
  using V = VecOf<S>;
  using K = typename Lanes<float>::I;
  static constexpr int64_t L = lanes<S>, kAhead = 4096, kLine = 64 / sizeof(I);
  static constexpr int64_t kFew = 1024;  // bytes of the result to a window
  static constexpr int64_t kZeros = (128 << 10) / sizeof(S);  // elements that are set to zero at once

 public:
  static int64_t units(const Problem& p) { return ScatterLayout::units(p, Method::compared); }
  int64_t scratch() const { return carve_.used(); }

  ScatterCompared(const Problem& p, const Arrays& arrays, void* scratch)
      : p_(p), arrays_(arrays), layout_(p, Method::compared, arrays.tight), near_(p, arrays.tight), carve_(scratch) {
    int64_t n = near_.windows * near_.channels, vectors = near_.copied ? 0 : n + L;
    keys_ = carve_.take<int32_t>(near_.copied ? 0 : 2 * near_.slot * near_.slots);
    others_ = carve_.take<const int32_t*>(near_.copied ? 0 : near_.pairs());
    starts_ = carve_.take<int32_t>((near_.joined ? 6 : 3) * vectors);
    distances_ = carve_.take<int64_t>(near_.joined ? near_.pairs() + 1 : 0);
    places_ = carve_.take<uint32_t>(kBatch + L);
    sums_ = carve_.take<S>(kBatch + L);
    decoded_ = carve_.take<int64_t>(p.index_bytes == 1 ? larger(vectors, kDecoded) : 0);
  }

  void begin() {
    if (near_.copied) return;
    int64_t n = near_.windows * near_.channels, after = near_.before + n;
    for (int64_t i = 0; i < near_.slots; i++) {
      int32_t* slot = keys_ + 2 * i * near_.slot;
      fill_keys(slot, near_.before), fill_keys(slot + after, near_.slot - after);
    }
    table_size_ = n + L;
    int32_t* channel = starts_ + 2 * table_size_;
    for (int64_t i = 0, c = 0; i < table_size_; i++) {
      channel[i] = (int32_t)c;
      if (++c == near_.channels) c = 0;
    }
    if (near_.joined) fill_joined_table();
    else if (!in_pieces()) fill_table(0);
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    int64_t size = p_.cells() * near_.channels, segments = layout_.segments;
    S* out = (S*)arrays_.out;
    zeros_ = out + first_element(begin), zeros_end_ = out + first_element(end);
    if (!near_.copied) table_size_ = near_.windows * near_.channels + L;
    few_windows_ = p_.cells() * (int64_t)sizeof(S) >= kFew * p_.windows();
    bool planes = near_.copied && segments == 1 && p_.windows() <= kDecoded;
    if (planes) copy_planes(begin, end);
    if (near_.joined) join_planes(begin, end);
    for (int64_t unit = planes || near_.joined ? end : begin; unit < end && !strays_; unit++) {
      int64_t image = unit / segments, segment = unit % segments;
      out_ = out + image * size, image_ = image;
      scatter_segment(slice_of(segment), slice_of(segment + 1));
    }
    open(zeros_end_);
    fault.retry |= strays_;
  }

 private:
  static constexpr int64_t kDecoded = 512, kBatch = 512;

  bool in_pieces() const { return &layout_.axis == &p_.w; }
  int64_t slice_of(int64_t segment) const { return layout_.slices * segment / layout_.segments; }
  int64_t first_element(int64_t unit) const {
    return (unit / layout_.segments * p_.cells() + slice_of(unit % layout_.segments) * layout_.slice) * near_.channels;
  }

  // Sets the result before `end` to zero, and usually also the elements after `end`, because many small memsets take
  // longer than one large memset. If planes have few windows, most cells are only set to zero, and the zeros need not stay
  // in the cache.
  void open(const S* end) {
    if (end <= zeros_) return;
    int64_t n = smaller(larger(end - zeros_, few_windows_ ? zeros_end_ - zeros_ : kZeros), zeros_end_ - zeros_);
    memset((void*)zeros_, 0, n * sizeof(S));
    zeros_ += n;
  }

  // Scatters into the slices from … to - 1.
  void scatter_segment(int64_t from, int64_t to) {
    const Axis& axis = layout_.axis;
    int64_t first = 0, last = axis.windows;
    while (first < last && end_of(axis, first) <= from) first++;
    while (last > first && axis.start[last - 1] >= to) last--;
    from_ = from * layout_.slice, to_ = to * layout_.slice;
    if (near_.copied) return copy_windows(first, last);
    if (in_pieces()) {
      fill_keys(keys_, near_.slot);
      for (int64_t o = first, n; o < last && !strays_; o += n) {
        n = smaller(near_.windows, last - o);
        fill_table(o);
        open(out_ + smaller(end_of(axis, o + n - 1), to_) * near_.channels);
        add_row(0, 0, o, n, 0);
        keep_last(n);
      }
      return;
    }
    bool by_d = &axis == &p_.d;
    int64_t d_from = by_d ? first : 0, d_to = by_d ? last : p_.d.windows, h_from = by_d ? 0 : first, h_to = by_d ? p_.h.windows : last;
    for (int64_t od = d_from; od < d_to; od++)
      for (int64_t oh = h_from; oh < h_to && !strays_; oh++) {
        open(out_ + smaller(end_of(axis, by_d ? od : oh) * layout_.slice, to_) * near_.channels);
        add_row(od, oh, 0, near_.windows, list_rows(od, oh, d_from, h_from));
      }
  }

  // Keys of windows that do not exist.
  static void fill_keys(int32_t* to, int64_t n) { memset((void*)to, 0xFF, n * sizeof(int32_t)); }

  // Writes where the windows from `o` on begin and their lengths, for each element of a row.
  void fill_table(int64_t o) {
    int32_t *start = starts_, *length = starts_ + table_size_;
    for (int64_t last = smaller(p_.w.windows, o + near_.windows); o < last; o++) {
      int32_t from = p_.w.start[o], cells = (int32_t)(end_of(p_.w, o) - from);
      for (int64_t c = 0; c < near_.channels; c++) *start++ = from, *length++ = cells;
    }
  }

  // Writes the tables of a joined row: besides starts and lengths, the first cell of each window's plane, and how many
  // cells its rows and its slices span.
  void fill_joined_table() {
    int64_t n = near_.list_distances(p_, distances_ + 1), i = 0;
    distances_[0] = n;
    for (int64_t plane = 0; i < near_.windows; plane++)
      for (int64_t od = 0; od < p_.d.windows; od++)
        for (int64_t oh = 0; oh < p_.h.windows; oh++)
          for (int64_t ow = 0; ow < p_.w.windows; ow++, i++) {
            int64_t start = (p_.d.start[od] * p_.h.cells + p_.h.start[oh]) * p_.w.cells + p_.w.start[ow];
            int64_t width = end_of(p_.w, ow) - p_.w.start[ow];
            int64_t rows = (end_of(p_.h, oh) - p_.h.start[oh] - 1) * p_.w.cells + width;
            int64_t slices = (end_of(p_.d, od) - p_.d.start[od] - 1) * p_.h.cells * p_.w.cells + rows;
            int64_t values[] = {start, width, 0, plane * p_.cells(), rows, slices};
            for (int64_t t = 0; t < 6; t++) starts_[t * table_size_ + i] = (int32_t)values[t];
          }
  }

  // Scatters into the planes begin … end - 1, some planes at a time.
  void join_planes(int64_t begin, int64_t end) {
    const int64_t most = near_.windows / p_.windows();
    for (int64_t n; begin < end && !strays_; begin += n) {
      n = smaller(most, end - begin);
      out_ = (S*)arrays_.out + begin * p_.cells(), image_ = begin;
      from_ = 0, to_ = n * p_.cells();
      open(out_ + to_);
      add_row(0, 0, 0, n * p_.windows(), 0);
    }
  }

  int32_t* slot_of(int64_t od, int64_t oh) const {
    int64_t i = near_.d ? od % (near_.d + 1) * p_.h.windows + oh : oh % (near_.h + 1);
    return keys_ + 2 * i * near_.slot + near_.before;
  }

  // Lists the rows, each with its shifts, that row (od, oh) is compared with, except itself. Returns their number.
  int64_t list_rows(int64_t od, int64_t oh, int64_t d_from, int64_t h_from) {
    int64_t n = 0;
    for (int64_t i = larger(d_from, od - near_.d); i <= od; i++) {
      if (end_of(p_.d, i) <= p_.d.start[od]) continue;
      int64_t h_to = i < od ? smaller(oh + near_.h + 1, p_.h.windows) : oh;
      for (int64_t j = larger(h_from, oh - near_.h); j < h_to; j++) {
        if (end_of(p_.h, j) <= p_.h.start[oh] || end_of(p_.h, oh) <= p_.h.start[j]) continue;
        for (int64_t k = -near_.w; k <= near_.w; k++) others_[n++] = slot_of(i, j) + k * near_.channels;
      }
    }
    return n;
  }

  // Moves the keys and gradients of the last windows of a piece before the next piece.
  void keep_last(int64_t n) {
    int64_t kept = near_.w * near_.channels;
    int32_t* keys = slot_of(0, 0);
    memmove((void*)(keys - kept), keys + n * near_.channels - kept, kept * sizeof(int32_t));
    memmove((void*)(keys + near_.slot - kept), keys + near_.slot + n * near_.channels - kept, kept * sizeof(float));
  }

  // Adds n windows from (od, oh, ow) on. They are compared with `listed` shifts of other rows.
  void add_row(int64_t od, int64_t oh, int64_t ow, int64_t windows, int64_t listed) {
    int64_t n = windows * near_.channels, q = (od * p_.h.windows + oh) * p_.w.windows + ow;
    int64_t at = (image_ * p_.windows() + q) * near_.channels;
    int32_t* keys = slot_of(od, oh);
    const int64_t elements = p_.planes() * p_.windows();
    with_storage<S>(p_, [&](auto s) { load_gradients((const decltype(s)*)arrays_.grad + at, n, elements - at, (float*)(keys + near_.slot)); });
    const I* index = indices(at, q, windows);
    const I* end = p_.index_bytes == 1 ? index + n : (const I*)arrays_.indices + elements;
    if (!load_keys(od, oh, index, end, n, keys)) {
      strays_ = true;
      return;
    }
    if (near_.joined)
      for (int64_t k = 1; k <= distances_[0]; k++) others_[listed++] = keys - distances_[k];
    for (int64_t k = near_.joined ? 0 : near_.w; k > 0; k--) others_[listed++] = keys - k * near_.channels;
    with_storage<S>(p_, [&](auto s) { add_elements(s, keys, n, listed); });
  }

  // Returns the cells that the indices of some windows name. `at` is the position of the first index.
  const I* indices(int64_t at, int64_t q, int64_t windows) {
    if (p_.index_bytes > 1) return (const I*)arrays_.indices + at;
    if constexpr (sizeof(I) == 8) decode_offsets(p_, (const uint8_t*)arrays_.indices + at, q, windows, near_.channels, decoded_);
    return (const I*)decoded_;
  }

  // Loads n of the `most` gradients that exist.
  template <class X> static void load_gradients(const X* from, int64_t n, int64_t most, float* to) {
    int64_t i = 0;
    for (; i + L <= smaller(round_up(n, L), most); i += L) {
      __builtin_prefetch((const char*)(from + i) + kAhead / 2);
      store(to + i, load(from + i));
    }
    if (i < n) store(to + i, load_part(from + i, n - i));
  }

  // Loads L indices, as 32 bits. `wide` gets the bits of all indices of 64 bits.
  template <class W> static K load_indices(const I* from, W& wide) {
    if constexpr (sizeof(I) == 4) {
      return read<K>(from);
    } else {
      W low = read<W>(from), high = read<W>(from + L / 2);
      wide |= low | high;
      return lower_halves((K)low, (K)high, UpTo<L>());
    }
  }

  // Returns the lower half of each element of two vectors of 64-bit elements.
  template <int... i> static K lower_halves(K low, K high, Order<i...>) { return __builtin_shufflevector(low, high, (2 * i)...); }

  // Writes the keys of a row of windows. Returns false if an index is not in its window.
  bool load_keys(int64_t od, int64_t oh, const I* from, const I* end, int64_t n, int32_t* to) const {
    using W = typename IndexVector<I>::Wide;
    const int64_t plane = p_.h.cells * p_.w.cells, row = p_.w.cells;
    const bool joined = near_.joined;
    const int64_t d = joined ? p_.d.cells : end_of(p_.d, od) - p_.d.start[od];
    const int64_t h = joined ? p_.h.cells : end_of(p_.h, oh) - p_.h.start[oh];
    const int32_t corner = joined ? 0 : (int32_t)((p_.d.start[od] * p_.h.cells + p_.h.start[oh]) * row);
    const float by_plane = 1.0f / (float)plane, by_row = 1.0f / (float)row;
    const int32_t *starts = starts_, *lengths = starts_ + table_size_;
    W wide{};
    U32 outside{};
    for (int64_t i = 0; i < n; i += L) {
      K key, exists = ~K{};
      if (i + L <= n) {
        for (int64_t k = 0; k < L; k += kLine) __builtin_prefetch((const char*)(from + i + k) + kAhead);
        key = load_indices(from + i, wide);
      } else {
        I part[L] = {};
        bool whole = from + i + L <= end;
        if (!whole) memcpy((void*)part, from + i, (n - i) * sizeof(I));
        W all{};
        key = load_indices(whole ? from + i : part, all);
        exists = lane_numbers() < (int32_t)(n - i) - K{};
        if (any_negative((W)(all >> 31 != 0)))
          for (int64_t k = i; k < n; k++) wide |= W{} + from[k];
      }
      U32 x = (U32)key - (uint32_t)corner - read<U32>(starts + i);
      const U32 width = read<U32>(lengths + i);
      const U32 rows = joined ? read<U32>(starts + 4 * table_size_ + i) : width + (uint32_t)((h - 1) * row);
      const U32 slices = joined ? read<U32>(starts + 5 * table_size_ + i) : rows + (uint32_t)((d - 1) * plane);
      outside |= (U32)(x >= slices) & (U32)exists;
      if (d > 1) {
        x -= (U32)quotient(x, by_plane) * (uint32_t)plane;
        outside |= (U32)(x >= rows) & (U32)exists;
      }
      if (h > 1) {
        x -= (U32)quotient(x, by_row) * (uint32_t)row;
        outside |= (U32)(x >= width) & (U32)exists;
      }
      if (joined) key = (K)((U32)key + read<U32>(starts + 3 * table_size_ + i));
      write(to + i, key | ~exists);
    }
    return !any_negative((K)outside) && !any_negative((W)(wide >> 31 != 0));
  }

  // Returns x / n, rounded down, for x < 2**22; `by` is the reciprocal of n.
  static K quotient(U32 x, float by) {
    return __builtin_convertvector((__builtin_convertvector((K)x, V) + 0.5f) * by, K);
  }
  static K lane_numbers() {
    static constexpr int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return read<K>(numbers);
  }

  // Writes the sums of n elements of a row. A first loop computes the sums and their places, and a second one writes
  // them: to read single elements of a vector that was just written is slow.
  template <class X> void add_elements(X x, const int32_t* keys, int64_t n, int64_t listed) {
    X* out = (X*)out_;
    const X* sums = (const X*)sums_;
    const uint32_t* places = places_;
    for (int64_t from = 0, count; from < n; from += count) {
      count = smaller(kBatch, n - from);
      U32 outside{};
      int64_t i = 0;
      for (; i + 4 * L <= count; i += 4 * L) outside |= add_vectors<4>(x, keys + from, from, i, listed);
      for (; i + L <= count; i += L) outside |= add_vectors<1>(x, keys + from, from, i, listed);
      if (i < count) outside |= add_vectors<1>(x, keys + from, from, i, listed) & (U32)(lane_numbers() < (int32_t)(count - i) - K{});
      if (any_negative((K)outside)) {
        const int32_t* key = keys + from;
        const uint32_t first = (uint32_t)from_, cells = (uint32_t)(to_ - from_);
        X unused;
        for (i = 0; i < count; i++) *((uint32_t)key[i] - first < cells ? out + places[i] : &unused) = sums[i];
      } else {
#pragma GCC unroll 16
        for (i = 0; i < count; i++) out[places[i]] = sums[i];
      }
    }
  }

  // Computes the sums and places of vectors from element from + i of a row on. Returns -1 in lanes whose cells are not
  // in this segment.
  template <int vectors, class X> POOLTIDE_INLINE U32 add_vectors(X, const int32_t* keys, int64_t from, int64_t i, int64_t listed) {
    const int32_t *const *others = others_, *const *const end = others + listed;
    const int64_t to_gradients = near_.slot;
    const uint32_t first = (uint32_t)from_, cells = (uint32_t)(to_ - from_);
    V sums[vectors] = {};
    K wanted[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) wanted[v] = read<K>(keys + i + v * L);
    for (; others < end; others++) {
      const int32_t* other = *others + from + i;
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++)
        sums[v] = Equal<float>(other + v * L, wanted[v]).add(sums[v], read<V>(other + v * L + to_gradients));
    }
    const int32_t* channels = starts_ + 2 * table_size_ + from + i;
    U32 outside{};
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      store((X*)sums_ + i + v * L, sums[v] + read<V>(keys + i + v * L + to_gradients));
      write(places_ + i + v * L, (U32)wanted[v] * (uint32_t)near_.channels + read<U32>(channels + v * L));
      outside |= (U32)((U32)wanted[v] - first >= cells);
    }
    return outside;
  }

  // Copies a gradient. `used` is not 0 afterwards if the cell had another one. If there is no other, 0 + g has the bits of
  // g, except that -0 becomes +0.
  static POOLTIDE_INLINE void copy(S g, S* cell, uint32_t& used) {
    used |= cell->bits;
    cell->bits = g.bits == 0x8000 ? 0 : g.bits;
  }

  // Copies the gradients of planes with few disjoint windows, some planes at a time.
  void copy_planes(int64_t begin, int64_t end) {
    const int64_t windows = p_.windows(), cells = p_.cells();
    uint32_t used = 0;
    bool strays = false;
    for (int64_t plane = begin, n; plane < end; plane += n) {
      n = smaller(end - plane, kDecoded / larger(windows, 1));
      S* out = (S*)arrays_.out + plane * cells;
      open(out + n * cells);
      const I* index = indices(plane * windows, 0, n * windows);
      const S* g = (const S*)arrays_.grad + plane * windows;
      for (int64_t k = 0; k < n; k++, out += cells) {
        __builtin_prefetch((const char*)index + kAhead);
        for (const I* last = index + windows; index < last; index++, g++) {
          bool stray = (uint64_t)*index >= (uint64_t)cells;
          strays |= stray;
          if (__builtin_expect(!stray, 1)) copy(*g, out + *index, used);
        }
      }
    }
    strays_ |= strays || used != 0;
  }

  // Copies the gradients of disjoint windows of a plane, from window `first` to `last` - 1 of the slow axis.
  void copy_windows(int64_t first, int64_t last) {
    const Axis& axis = layout_.axis;
    uint32_t used = 0;  // is not 0 if a gradient would be written over another one
    for (int64_t o = first, next; o < last && !strays_; o = next) {
      next = layout_.segments == 1 ? smaller(last, o + larger(1, kDecoded / layout_.row)) : o + 1;
      int64_t band = axis.start[o] * layout_.slice, band_end = end_of(axis, next - 1) * layout_.slice;
      open(out_ + smaller(band_end, to_));
      for (int64_t q = o * layout_.row, n; q < next * layout_.row; q += n) {
        n = smaller(kDecoded, next * layout_.row - q);
        copy_elements(q, n, band, band_end, used);
      }
    }
    strays_ |= used != 0;
  }

  void copy_elements(int64_t q, int64_t n, int64_t band, int64_t band_end, uint32_t& used) {
    const int64_t at = image_ * p_.windows() + q;
    const I* index = indices(at, q, n);
    const S* g = (const S*)arrays_.grad + at;
    S* out = out_;
    const uint64_t from = larger(band, from_), span = smaller(band_end, to_) - from;
    uint32_t found = used;
    bool strays = false;
    const auto copy_one = [&](int64_t i) __attribute__((always_inline)) {
      uint64_t cell = (uint64_t)index[i];
      if (__builtin_expect(cell - from >= span, 0)) {
        strays |= index[i] < band || index[i] >= band_end;
      } else {
        copy(g[i], out + cell, found);
      }
    };
    int64_t i = 0;
    for (; i + kLine <= n; i += kLine) {
      __builtin_prefetch((const char*)(index + i) + kAhead);
      __builtin_prefetch((const char*)(g + i) + kAhead / 2);
#pragma GCC unroll 16
      for (int64_t k = 0; k < kLine; k++) copy_one(i + k);
    }
    for (; i < n; i++) copy_one(i);
    used = found, strays_ |= strays;
  }

  const Problem& p_;
  const Arrays& arrays_;
  const ScatterLayout layout_;
  const Compared near_;
  Carve carve_;
  int32_t* keys_;  // the slots: keys, then as many gradients
  const int32_t** others_;
  int32_t* starts_;  // per element of a row: the first cell of its window, its window's length, its channel, and more if joined
  int64_t* distances_;  // of a joined row: their number, then list_distances
  uint32_t* places_;  // of the sums of a batch
  S* sums_;
  int64_t* decoded_;
  int64_t table_size_ = 0;
  // The current image, and the cells of the current segment.
  S* out_ = nullptr;
  int64_t image_ = 0, from_ = 0, to_ = 0;
  S *zeros_ = nullptr, *zeros_end_ = nullptr;  // what is still to be set to zero
  bool few_windows_ = false, strays_ = false;
};

}  // namespace
}  // namespace pooltide
