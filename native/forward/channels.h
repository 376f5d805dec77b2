// Averages and maxima in channels-last order.
//
// A vector holds neighbouring channels of one cell. Each window is reduced cell by cell, some vectors at a time; the
// results, and the indices of maxima, are written in the same order. If a vector has room for the channels of several
// cells, and windows are one cell apart, it holds neighbouring windows, each with all its channels.
// A unit is a piece of a row of windows, or some channels of one window if there are few windows.

#pragma once

#include "windows.h"

namespace pooltide {
namespace {

template <class S, bool maximum, bool indexed> class ChannelsForward {
  using T = typename Sum<S>::T;
  using Int = IntOf<T>;
  using V = VecOf<S>;
  using I = typename IntLanes<T>::I;
  static constexpr int64_t L = lanes<S>, kAhead = 4096;  // bytes
  // Vectors that are reduced together: their updates do not wait for each other, and more of a cell is read at once.
  static constexpr int kMost = maximum && kVectorBytes == 64 ? 8 : 4;
  static constexpr int kCells = 5;  // that add_rows adds together
  static constexpr int64_t kSplit = 64 << 10, kTerms = 1024;  // of average_split: elements, and cells of a window

 public:
  ChannelsForward(const Problem& p, const Arrays& arrays, void* scratch)
      : p_(p), arrays_(arrays), apart_(distances(p)), ahead_(prefetch_distance(p)), carve_(scratch) {
    split_size_ = !maximum && p.channels < L && !arrays.tight ? kSplit : 0;
    split_ = carve_.template take<T>(split_size_ ? split_size_ + L : 0);
    terms_ = carve_.template take<const T*>(split_size_ ? kTerms : 0);
    sums_ = carve_.template take<T>(!maximum && p.channels > kMost * L ? p.channels + L : 0);
  }
  static int64_t units(const Problem& p) { return Pieces(p).units(); }
  int64_t scratch() const { return carve_.used(); }
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (!p.channels_last) return "the arrays are not channels-last";
    return !ignore_speed && p.channels >= L && shares_rows(p) ? "many windows share each row of cells" : nullptr;
  }

  void run(int64_t begin, int64_t end) const {
    const Pieces pieces(p_);
    for (int64_t unit = begin; unit < end; unit++) {
      int64_t row = unit / pieces.blocks / pieces.segments, from = unit / pieces.blocks % pieces.segments * pieces.windows;
      int64_t block = unit % pieces.blocks, to = smaller(p_.w.windows, from + pieces.windows);
      int64_t oh = row % p_.h.windows, od = row / p_.h.windows % p_.d.windows, q = row * p_.w.windows;
      const WindowRow<T> windows{p_, od, oh};
      const S* x = (const S*)arrays_.input + row / p_.h.windows / p_.d.windows * p_.cells() * p_.channels;
      const int64_t channel = pieces.channel(p_, block), end_channel = pieces.channel(p_, block + 1);
      if (p_.channels < L) reduce_few_channels(windows, x, from, to, q);
      else for (int64_t o = from; o < to; o++) reduce_channels(windows, o, x, q + o, channel, end_channel);
    }
  }

 private:
  // The division into units: rows of windows, segments of a row, and blocks of channels. It must be the same for
  // averages and maxima, because the list of kernels asks only one of them for `units`.
  struct Pieces {
    static constexpr int64_t kUnits = 64, kBlock = 8 * L;  // enough for many threads; channels, a multiple of kMost vectors
    int64_t rows, windows, segments, blocks;

    explicit Pieces(const Problem& p) : rows(p.batch * p.d.windows * p.h.windows) {
      windows = larger(1, smaller(kSegment, rows * p.w.windows / kUnits));
      segments = (p.w.windows + windows - 1) / windows;
      blocks = larger(1, smaller(p.channels / kBlock, kUnits / larger(1, rows * segments)));
    }
    int64_t units() const { return rows * segments * blocks; }
    // Returns the first channel of a block. All blocks but the last have a multiple of kBlock channels.
    int64_t channel(const Problem& p, int64_t block) const {
      return block == blocks ? p.channels : p.channels / kBlock * block / blocks * kBlock;
    }
  };

  void reduce_channels(const WindowRow<T>& windows, int64_t ow, const S* x, int64_t q, int64_t c, int64_t end) const {
    if constexpr (!maximum)
      if (end - c > kMost * L) return add_rows(windows, ow, x, q * p_.channels, c, end);
    while (c < end) c = reduce<kMost>(windows, ow, x, q * p_.channels, c, end);
  }

  // Averages so many channels that they are several blocks of vectors: adds kCells cells at a time, each with all its
  // channels, because the processor prefetches memory that is read in order.
  void add_rows(const WindowRow<T>& windows, int64_t ow, const S* x, int64_t to, int64_t c, int64_t end) const {
    const S* cells[kCells];
    const T* before = nullptr;
    T* const sums = sums_;
    int64_t n = 0;
    for_each_cell(windows, ow, x + c, [&](const S* cell, I) {
      if (n == kCells) {
        add_cells(cells, n, before, end - c, [=](int64_t at, int64_t, V sum) { store(sums + at, sum); });
        before = sums, n = 0;
      }
      cells[n++] = cell;
    });
    windows.with_quotient(ow, [&](auto quotient) {
      S* out = (S*)arrays_.out + to + c;
      add_cells(cells, n, before, end - c, [=](int64_t, int64_t channel, V sum) { store(out + channel, quotient(sum)); });
    });
  }

  // Adds n cells to the sums `before`, which are zeros if the pointer is null, and calls use(at, channel, sum) for each
  // vector of sums. The last vector ends at the last channel, so that some channels may be added twice, to different sums.
  template <int most = kCells, class F>
  static void add_cells(const S* const* cells, int64_t n, const T* before, int64_t channels, F use) {
    if constexpr (most > 0)
      if (n < most) return add_cells<most - 1>(cells, n, before, channels, use);
    const S* from[most + 1];
    for (int k = 0; k < most; k++) from[k] = cells[k];
    const auto add = [=](int64_t at, int64_t channel) __attribute__((always_inline)) {
      V sum = before ? load(before + at) : V{};
#pragma GCC unroll 8
      for (int k = 0; k < most; k++) sum += load(from[k] + channel);
      use(at, channel, sum);
    };
    int64_t at = 0;
#pragma GCC unroll 2
    for (; at + L <= channels; at += L) add(at, at);
    if (at < channels) add(at, channels - L);
  }

  // Reduces window ow for the channels c … end - 1: n vectors of channels, or half as many if half as many suffice. The
  // last vectors end at the last channel, so some channels may be reduced twice. Returns the next channel to reduce.
  template <int n> int64_t reduce(const WindowRow<T>& windows, int64_t ow, const S* x, int64_t to, int64_t c, int64_t end) const {
    if constexpr (n > 1)
      if (p_.channels < n * L || end - c <= n / 2 * L) return reduce<n / 2>(windows, ow, x, to, c, end);
    int64_t from = smaller(c, end - n * L);
    Reduction<T, indexed> results[n];
#pragma GCC unroll 8
    for (int v = 0; v < n; v++) results[v] = begun(windows, ow);
    const int64_t ahead = ahead_;
    for_each_cell(windows, ow, x + from, [&](const S* cell, I at) __attribute__((always_inline)) {
      if (ahead)
        for (int64_t i = 0; i < n * L; i += 64 / sizeof(S)) __builtin_prefetch(cell + ahead + i);
#pragma GCC unroll 8
      for (int v = 0; v < n; v++) reduce_cell<maximum>(results[v], load(cell + v * L), at);
    });
    finish<n>(windows, ow, results, to + from, L);
    return from + n * L;
  }

  // Reduces the windows from … to - 1 of a row for fewer channels than a vector has; window 0 of the row is window q.
  void reduce_few_channels(const WindowRow<T>& windows, const S* x, int64_t from, int64_t to, int64_t q) const {
    const int64_t each = p_.w.stride == 1 ? L / p_.channels : 1;  // windows in a vector
    for (int64_t o = from; o < to;) {
      if constexpr (!maximum)
        if (int64_t n = alike(o, to); can_split(windows, o, n)) {
          average_split(windows, o, n, x, q + o);
          o += n;
          continue;
        }
      int64_t n = alike(o, smaller(to, o + each * kMost));
      if (n == each * kMost) reduce_neighbours<kMost>(windows, o, each, x, q);
      else reduce_neighbours<1>(windows, o, n = smaller(n, each), x, q);
      o += n;
    }
  }

  // Returns whether average_split can average n alike windows, and is faster than one window after the other.
  bool can_split(const WindowRow<T>& windows, int64_t o, int64_t n) const {
    const int64_t stride = p_.w.stride, rows = p_.d.length[windows.od] * p_.h.length[windows.oh], cells = rows * p_.w.length[o];
    if (n * p_.channels < 2 * L || (stride == 1 && sizeof(S) == sizeof(T)) || stride < 1) return false;
    return cells <= kTerms && rows * stride * group_size(o, n) <= split_size_ && 6 * rows * stride < 60 + 4 * cells;
  }
  // Cell t of a row is in group t % stride, at position t / stride.
  int64_t group_size(int64_t o, int64_t n) const {
    int64_t cells = n + (p_.w.length[o] * p_.w.dilation) / p_.w.stride + 1;
    return round_up(cells * p_.channels, L) + kMost * L;
  }

  // Averages n alike windows from o on, with all lanes of the vectors: converts each row of cells once, and splits it into
  // as many groups as the stride. Then the k-th cells of neighbouring windows are neighbours. Window o is window q.
  void average_split(const WindowRow<T>& windows, int64_t o, int64_t n, const S* x, int64_t q) const {
    const int64_t stride = p_.w.stride, channels = p_.channels, size = group_size(o, n), count = p_.w.length[o], used = n * channels;
    const int64_t cells = (n - 1) * stride + (count - 1) * p_.w.dilation + 1;
    int64_t terms = 0;
    T* to = split_;
    for (int64_t i = 0; i < p_.d.length[windows.od]; i++)
      for (int64_t j = 0; j < p_.h.length[windows.oh]; j++, to += stride * size) {
        split_row(x + (windows.row(i, j) * p_.w.cells + p_.w.start[o]) * channels, cells, size, to);
        for (int64_t k = 0, t = 0; k < count; k++, t += p_.w.dilation) terms_[terms++] = to + t % stride * size + t / stride * channels;
      }
    windows.with_quotient(o, [&](auto quotient) {
      for (int64_t e = 0; e < used; e += kMost * L) {
        V sums[kMost] = {};
        for (int64_t term = 0; term < terms; term++)
#pragma GCC unroll 8
          for (int v = 0; v < kMost; v++) sums[v] += load(terms_[term] + e + v * L);
        for (int v = 0; v < kMost && e + v * L < used; v++)
          store_results<S>(arrays_, q * channels + e + v * L, quotient(sums[v]), smaller(L, used - e - v * L));
      }
    });
  }

  // Converts the cells of a row. Whole vectors are written, of which the next cell overwrites the surplus.
  void split_row(const S* x, int64_t cells, int64_t size, T* to) const {
    const S* end = (const S*)arrays_.input + p_.batch * p_.cells() * p_.channels;
    const int64_t stride = p_.w.stride, channels = p_.channels;
    const auto convert = [=](int64_t from, int64_t n, T* to) __attribute__((always_inline)) {
      store(to, x + from + L <= end ? load(x + from) : load_part(x + from, smaller(n, end - x - from)));
    };
    if (stride == 1) {
      for (int64_t i = 0; i < cells * channels; i += L) convert(i, L, to + i);
      return;
    }
    for (int64_t g = 0; g < stride; g++, to += size) {
      T* at = to;
      for (int64_t t = g; t < cells; t += stride, at += channels) convert(t * channels, channels, at);
    }
  }

  // Returns how many windows from o on, before `to`, have the length and divisor of window o and begin one stride apart.
  int64_t alike(int64_t o, int64_t to) const {
    int64_t n = 1;
    if (o < p_.w.regular_from) return n;
    while (o + n < smaller(to, p_.w.regular_to) && (maximum || p_.w.divisor[o + n] == p_.w.divisor[o])) n++;
    return n;
  }

  // Reduces `vectors` × n neighbouring windows, n in a vector.
  template <int vectors> void reduce_neighbours(const WindowRow<T>& windows, int64_t o, int64_t n, const S* x, int64_t q) const {
    const S* end = (const S*)arrays_.input + p_.batch * p_.cells() * p_.channels;
    const int64_t used = n * p_.channels, step = p_.w.stride * used;  // lanes; elements from one vector to the next
    const I apart = apart_;
    const Int next = (Int)(p_.index_bytes == 1 ? 0 : n * p_.w.stride);
    Reduction<T, indexed> results[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) results[v] = begun(windows, o + v * n), results[v].index += apart;
    for_each_cell(windows, o, x, [&](const S* cell, I at) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v++, cell += step)
        reduce_cell<maximum>(results[v], cell + L <= end ? load(cell) : load_part(cell, used), at + apart + v * next);
    });
    finish<vectors>(windows, o, results, (q + o) * p_.channels, used);
  }

  // Returns how many elements ahead the cells of a row are prefetched, or 0. If windows are disjoint, each cell is read
  // once, a few vectors of its channels at a time, and the hardware does not predict that.
  static int64_t prefetch_distance(const Problem& p) {
    if (!p.d.disjoint || !p.h.disjoint || !p.w.disjoint) return 0;
    int64_t cell = larger(p.channels, 1);
    return larger(1, kAhead / (int64_t)sizeof(S) / cell) * cell;
  }

  // Returns how many cells the windows of the lanes of a vector are apart from the first one.
  static I distances(const Problem& p) {
    Int lanes[L] = {};
    for (int64_t i = 0; i < L && p.channels < L && p.index_bytes != 1; i++) lanes[i] = (Int)(i / larger(p.channels, 1));
    return read<I>(lanes);
  }

  Reduction<T, indexed> begun(const WindowRow<T>& windows, int64_t ow) const {
    return {maximum ? splat(kLowest<T>) : V{}, (Int)windows.index(ow) - I{}};
  }

  // Writes n vectors of results, of which `used` lanes count. The divisor is that of window ow.
  template <int n>
  void finish(const WindowRow<T>& windows, int64_t ow, const Reduction<T, indexed>* results, int64_t to, int64_t used) const {
    const auto store_all = [&](auto value_of) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int v = 0; v < n; v++) store_results<S>(p_, arrays_, to + v * used, value_of(results[v]), used);
    };
    if constexpr (maximum) store_all([](const auto& result) { return result; });
    else windows.with_quotient(ow, [&](auto quotient) {
      store_all([&](auto result) { return result.value = quotient(result.value), result; });
    });
  }

  // Calls use(address, index) for each cell of window ow. The first cell of the plane is at x.
  template <class F> POOLTIDE_INLINE void for_each_cell(const WindowRow<T>& windows, int64_t ow, const S* x, F use) const {
    int64_t first = p_.w.start[ow], count = p_.w.length[ow], step = p_.w.dilation * p_.channels;
    for (int64_t i = 0; i < p_.d.length[windows.od]; i++)
      for (int64_t j = 0; j < p_.h.length[windows.oh]; j++) {
        const S* cell = x + (windows.row(i, j) * p_.w.cells + first) * p_.channels;
        I at = (Int)(windows.index_of_row(i, j) + first_index(p_, ow)) - I{};
        for (int64_t k = 0; k < count; k++, cell += step, at += (Int)index_step(p_)) use(cell, at);
      }
  }

  const Problem& p_;
  const Arrays& arrays_;
  const I apart_;
  const int64_t ahead_;
  Carve carve_;
  T* sums_;  // of all channels of a window
  int64_t split_size_;  // elements
  T* split_;            // the rows of cells of average_split
  const T** terms_;     // the k-th cells of neighbouring windows, for each k
};

}  // namespace
}  // namespace pooltide
