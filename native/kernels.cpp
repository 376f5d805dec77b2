// The kernels of one instruction set, POOLTIDE_ISA: one list per storage type. Compiled once for each set.
//
// The first kernel of the list that does not refuse a problem computes it. A kernel refuses problems that it
// can't compute, and problems that a later kernel computes faster.

#include "forward/channels.h"
#include "forward/means.h"
#include "forward/rows.h"
#include "forward/tiles.h"
#include "gradient/average.h"
#include "gradient/gather_channels.h"
#include "gradient/long_row.h"
#include "gradient/one_window.h"
#include "gradient/scatter.h"
#include "gradient/scatter_any.h"
#include "gradient/small_planes.h"

namespace pooltide {
namespace {

template <void (*run)(const Problem&, const Arrays&, int64_t, int64_t, void*, Fault&)>
void run_ieee(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* scratch, Fault& fault) {
  IeeeMode ieee;
  run(p, arrays, begin, end, scratch, fault);
}

// Kernel::stream_bytes. `scatter_bands` reads windows and writes bands in turns, so it gains earlier (docs/kernels.md).
constexpr int64_t kStreamBytes = 32 << 20, kStreamBandBytes = 12 << 20;

template <class K> constexpr Kernel kernel(const char* name) {
  return {name, kStreamBytes, K::refuse, K::units, K::scratch, nullptr, run_ieee<K::run>};
}

// Gradients of averages with one layout of lines.
template <class S, Lines lines> struct Averages {
  static const char* refuse(const Problem& p, bool ignore_speed) {
    return LineLayout<S>::refuse(p, lines, ignore_speed);
  }
  static int64_t units(const Problem& p) { return AverageGradient<S>::units(p); }
  static int64_t scratch(const Problem& p, const Arrays& arrays) {
    return AverageGradient<S>::scratch(p, arrays, lines);
  }
  static void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* scratch, Fault&) {
    AverageGradient<S>(p, arrays, lines, scratch).run(begin, end);
  }
};

// Calls `use` with a null pointer to the type of the problem's indices.
template <class F> inline auto with_index_type(const Problem& p, F use) {
  if (p.index_bytes == 1) return use((uint8_t*)nullptr);
  return p.index_bytes == 4 ? use((int32_t*)nullptr) : use((int64_t*)nullptr);
}
template <class P> struct PointedBy;
template <class X> struct PointedBy<X*> { using Type = X; };
template <class P> using Pointed = typename PointedBy<P>::Type;

// Gradients of maxima. `K::With<I>` scatters or gathers with indices of type I.
template <class K> struct Maxima {
  static const char* refuse(const Problem& p, bool ignore_speed) {
    return p.kind == Kind::maximum_gradient ? K::refuse(p, ignore_speed) : "it computes gradients of maxima";
  }
  static int64_t units(const Problem& p) { return K::template With<int64_t>::units(p); }
  static int64_t scratch(const Problem& p, const Arrays& arrays) {
    return with_index_type(p, [&](auto* i) { return typename K::template With<Pointed<decltype(i)>>(p, arrays, nullptr).scratch(); });
  }
  static void begin(const Problem& p, const Arrays& arrays, void* scratch) {
    with_index_type(p, [&](auto* i) { typename K::template With<Pointed<decltype(i)>>(p, arrays, scratch).begin(); });
  }
  static void run(const Problem& p, const Arrays& arrays, int64_t from, int64_t to, void* scratch, Fault& fault) {
    with_index_type(p, [&](auto* i) { typename K::template With<Pointed<decltype(i)>>(p, arrays, scratch).run(from, to, fault); });
  }
};

template <class S, Method method> struct Scattered {
  static constexpr double kMeetings = 0.045;  // expected collisions per window; more collisions cost too much
  static constexpr bool half = sizeof(S) < sizeof(typename Sum<S>::T);
  template <class I> using With = Scatter<S, I, method>;
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (half == (method == Method::in_place)) return half ? "half types are summed in float32" : "the result is summed in place";
    if (const char* reason = ScatterLayout::refuse(p)) return reason;
    if (ignore_speed || method != Method::copied) return nullptr;
    return meetings(p) <= kMeetings ? nullptr : "windows overlap, and many name the same cells";
  }

 private:
  // Returns the expected number of other windows whose index names the same cell as the index of a given window, if
  // every index is a random cell of its window.
  static double meetings(const Problem& p) {
    const Axis* axes[] = {&p.d, &p.h, &p.w};
    double holding = 1, size = 1;  // windows that hold a cell, and cells of a window
    for (const Axis* axis : axes) {
      if (axis->windows == 0) return 0;
      int64_t held = 0;
      for (int64_t o = 0; o < axis->windows; o++) held += axis->length[o];
      double mean = double(held) / axis->cells;
      holding *= mean > 1 ? mean : 1, size *= double(held) / axis->windows;
    }
    return (holding - 1) / size;
  }
};

template <class S> struct Gathered {
  template <class I> using With = GatherChannels<S, I>;
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (!p.channels_last) return "the arrays are not channels-last";
    if (p.channels < lanes<S>) return "channels are fewer than a vector holds";
    if (!p.d.first || !p.h.first || !p.w.first) return "the row is too long for a table per window";
    if (p.cells() >= int64_t{1} << 31) return "a plane has 2**31 cells or more";
    if (p.d.dilation != 1 || p.h.dilation != 1 || p.w.dilation != 1) return "windows are dilated";
    int64_t cells = p.d.longest * p.h.longest * p.w.longest;
    if (p.index_bytes == 1 && cells > kOffsets) return "an offset has more than one byte";
    if (ignore_speed) return nullptr;
    if (!Scattered<S, Method::bands>::half) return "sums in the result are as fast";
    return cells <= most_cells(p) ? nullptr : "windows have many cells";
  }

 private:
  // Returns how many cells a window may have, so that comparing with all of them is faster than a scatter. With
  // 16 lanes: 6 if gradients can be copied, 12 if they are added in a ring, 27 if the ring outgrows the cache.
  static int64_t most_cells(const Problem& p) {
    bool copied = p.d.disjoint && p.h.disjoint && p.w.disjoint;
    int64_t most = copied ? 6 : ScatterLayout::outgrows_cache(p, Method::bands) ? 27 : 12;
    return most * lanes<S> / 16;
  }
};

template <class S> struct AnyIndices {
  template <class I> using With = ScatterAny<S, I>;
  static const char* refuse(const Problem&, bool) { return nullptr; }
};

template <class K> constexpr Kernel maxima(const char* name, int64_t stream_bytes = kStreamBytes) {
  using M = Maxima<K>;
  return {name, stream_bytes, M::refuse, M::units, M::scratch, M::begin, run_ieee<M::run>};
}

// Forwards: `K<S, maximum, indexed>` computes averages, maxima, or maxima and their indices.
template <class S, template <class, bool, bool> class K> struct Forwards {
  template <class F> static auto with_kind(const Problem& p, F use) {
    if (p.kind == Kind::average) return use((K<S, false, false>*)nullptr);
    return p.index_bytes ? use((K<S, true, true>*)nullptr) : use((K<S, true, false>*)nullptr);
  }
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (p.gradient()) return "it computes forwards";
    if (p.quotient == Quotient::mean) return "the mean of a plane is summed in another order";
    return K<S, false, false>::refuse(p, ignore_speed);
  }
  static int64_t units(const Problem& p) { return K<S, false, false>::units(p); }
  static int64_t scratch(const Problem& p, const Arrays& arrays) {
    return with_kind(p, [&](auto* k) { return Pointed<decltype(k)>(p, arrays, nullptr).scratch(); });
  }
  static void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* scratch, Fault&) {
    with_kind(p, [&](auto* k) { Pointed<decltype(k)>(p, arrays, scratch).run(begin, end); });
  }
};

template <class K> struct Means {
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (p.gradient() || p.quotient != Quotient::mean) return "it computes means of whole planes";
    return K::refuse(p, ignore_speed);
  }
  static int64_t units(const Problem& p) { return K::units(p); }
  static int64_t scratch(const Problem&, const Arrays&) { return 0; }
  static void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void*, Fault&) {
    K(p, arrays, nullptr).run(begin, end);
  }
};

template <class S> KernelList list() {
  static constexpr Kernel kernels[] = {
      kernel<OneWindow<S>>("one_window"),
      kernel<LongRow<S>>("long_row"),
      kernel<SmallPlanes<S>>("small_planes"),
      kernel<Averages<S, Lines::sliding>>("sliding_3x3"),
      kernel<Averages<S, Lines::shifted>>("stride_1"),
      kernel<Averages<S, Lines::phased>>("stride_2"),
      kernel<Averages<S, Lines::picked>>("picked_lines"),
      kernel<Averages<S, Lines::spread>>("spread_lines"),
      kernel<Averages<S, Lines::channels>>("average_channels"),
      kernel<Averages<S, Lines::single>>("cell_by_cell"),
      maxima<Gathered<S>>("gather_channels"),
      maxima<Scattered<S, Method::in_place>>("scatter_in_place"),
      maxima<Scattered<S, Method::copied>>("scatter_copied"),
      maxima<Scattered<S, Method::bands>>("scatter_bands", kStreamBandBytes),
      maxima<AnyIndices<S>>("scatter_any"),
      kernel<Means<ChannelsMean<S>>>("mean_channels"),
      kernel<Means<PlanesMean<S>>>("mean_planes"),
      kernel<Forwards<S, ChannelsForward>>("windows_channels"),
      kernel<Forwards<S, RowsForward>>("windows_rows"),
      kernel<Forwards<S, WholePlanesForward>>("windows_whole_planes"),
      kernel<Forwards<S, TilesForward>>("windows_tiles"),
  };
  return {kernels, sizeof kernels / sizeof *kernels};
}

KernelList kernels(Store store) {
  switch (store) {
    case Store::f32: return list<float>();
    case Store::f64: return list<double>();
    case Store::f16: return list<Half>();
    default: return list<Bfloat>();
  }
}

}  // namespace

#define NAME_(isa) kernels_##isa
#define NAME(isa) NAME_(isa)
#define TEXT_(isa) #isa
#define TEXT(isa) TEXT_(isa)
const InstructionSet NAME(POOLTIDE_ISA) = {TEXT(POOLTIDE_ISA), kernels};

}  // namespace pooltide
