// The kernels for gradients of maxima, in order.

#include "../gradient/gather_channels.h"
#include "../gradient/scatter.h"
#include "../gradient/scatter_any.h"
#include "../gradient/scatter_compared.h"
#include "list.h"

namespace pooltide {
namespace {

constexpr int64_t kStreamBandBytes = 12 << 20;  // bands are read and written in turns, so they gain earlier (docs/kernels.md)

// `K::with` calls a function with a null pointer to the class that computes a problem.
template <class K> struct Maxima {
  static int64_t units(const Problem& p) {
    return K::with(p, [&](auto* k) { return Pointed<decltype(k)>::units(p); });
  }
  static int64_t scratch(const Problem& p, const Arrays& arrays) {
    return K::with(p, [&](auto* k) { return Pointed<decltype(k)>(p, arrays, nullptr).scratch(); });
  }
  static void begin(const Problem& p, const Arrays& arrays, void* scratch) {
    K::with(p, [&](auto* k) { Pointed<decltype(k)>(p, arrays, scratch).begin(); });
  }
  static void run(const Problem& p, const Arrays& arrays, int64_t from, int64_t to, void* scratch, Fault& fault) {
    K::with(p, [&](auto* k) { Pointed<decltype(k)>(p, arrays, scratch).run(from, to, fault); });
  }
};

template <class S, Method method> struct Scattered {
  template <class F> static auto with(const Problem& p, F use) {
    if (p.index_bytes == 4) return use((Scatter<S, int32_t, method>*)nullptr);
    return use((Scatter<S, int64_t, method>*)nullptr);
  }
  static const char* refuse(const Problem& p, bool) { return ScatterLayout::refuse(p); }
};

template <class S> struct ComparedWindows {
  static constexpr int64_t kLargeImage = 1 << 20;  // bytes

  template <class F> static auto with(const Problem& p, F use) {
    if (p.index_bytes == 4) return use((ScatterCompared<S, int32_t>*)nullptr);
    return use((ScatterCompared<S, int64_t>*)nullptr);
  }
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (const char* reason = ScatterLayout::refuse(p)) return reason;
    if (const char* reason = Compared::refuse(p)) return reason;
    if (ignore_speed) return nullptr;
    const Compared near(p, false);
    if (near.copied || near.windows * near.channels == 0) return nullptr;
    if (near.slot * near.slots * 8 > Compared::kSlotBytes) return "the rows that overlap outgrow the cache";
    // The cost of a window by comparisons, and in a ring of sums, in instructions. In a channels-last image larger than the
    // second-level cache, a window of comparisons took 2.2 to 2.7 ns, in a smaller one 0.7 to 1.
    double n = double(near.windows * near.channels), vectors = double((near.windows * near.channels + lanes<S> - 1) / lanes<S>);
    double compared = (near.joined ? 8 : 5.5) + (130 + vectors * (16 + 3 * near.mean_pairs())) / n;
    if (p.channels_last && p.cells() * p.channels * p.itemsize() > kLargeImage) compared += 6;
    double summed = 5 + 24.0 / lanes<S> + 0.3 * double(p.cells()) / double(p.windows());
    return compared <= summed ? nullptr : "windows overlap much";
  }
};

template <class S> struct Gathered {
  template <class F> static auto with(const Problem& p, F use) {
    if (p.index_bytes == 1) return use((GatherChannels<S, uint8_t>*)nullptr);
    return use((GatherChannels<S, int32_t>*)nullptr);
  }
  static const char* refuse(const Problem& p, bool ignore_speed) {
    if (!p.channels_last) return "the arrays are not channels-last";
    if (p.channels < lanes<S>) return "channels are fewer than a vector holds";
    if (!p.d.first || !p.h.first || !p.w.first) return "the row is too long for a table per window";
    if (p.cells() >= int64_t{1} << 31) return "a plane has 2**31 cells or more";
    if (p.d.dilation != 1 || p.h.dilation != 1 || p.w.dilation != 1) return "windows are dilated";
    int64_t cells = p.d.longest * p.h.longest * p.w.longest;
    if (p.index_bytes == 1 && cells > kOffsets) return "an offset has more than one byte";
    if (ignore_speed) return nullptr;
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
  template <class F> static auto with(const Problem&, F use) { return use((ScatterAny<S>*)nullptr); }
  static const char* refuse(const Problem&, bool) { return nullptr; }
};

template <class K> constexpr Kernel maxima(const char* name, int64_t stream_bytes = kStreamBytes) {
  using M = Maxima<K>;
  return {name, stream_bytes, K::refuse, M::units, M::scratch, M::begin, run_ieee<M::run>};
}

// float32 and float64 are summed in the result itself, half types elsewhere, in float32.
template <class S> KernelList list() {
  if constexpr (sizeof(S) == sizeof(typename Sum<S>::T)) {
    static constexpr Kernel kernels[] = {
        maxima<Scattered<S, Method::in_place>>("scatter_in_place"),
        maxima<AnyIndices<S>>("scatter_any"),
    };
    return {kernels, sizeof kernels / sizeof *kernels};
  } else {
    static constexpr Kernel kernels[] = {
        maxima<Gathered<S>>("gather_channels"),
        maxima<ComparedWindows<Half>>("scatter_compared"),
        maxima<Scattered<Half, Method::bands>>("scatter_bands", kStreamBandBytes),
        maxima<AnyIndices<S>>("scatter_any"),
    };
    return {kernels, sizeof kernels / sizeof *kernels};
  }
}

}  // namespace

POOLTIDE_KERNELS(maximum_gradients, list)

}  // namespace pooltide
