// The kernels for averages and maxima, in order.

#include "../forward/channels.h"
#include "../forward/means.h"
#include "../forward/rows.h"
#include "../forward/tiles.h"
#include "list.h"

namespace pooltide {
namespace {

// `K<S, maximum, indexed>` computes averages, maxima, or maxima and their indices.
template <class S, template <class, bool, bool> class K> struct Forwards {
  template <class F> static auto with_kind(const Problem& p, F use) {
    if (p.kind == Kind::average) return use((K<S, false, false>*)nullptr);
    return p.index_bytes ? use((K<S, true, true>*)nullptr) : use((K<S, true, false>*)nullptr);
  }
  static const char* refuse(const Problem& p, bool ignore_speed) {
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
    return p.quotient == Quotient::mean ? K::refuse(p, ignore_speed) : "it computes means of whole planes";
  }
  static int64_t units(const Problem& p) { return K::units(p); }
  static int64_t scratch(const Problem&, const Arrays&) { return 0; }
  static void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void*, Fault&) {
    K(p, arrays, nullptr).run(begin, end);
  }
};

// Small classes of problems need no code of their own for maxima without indices.
template <class S, bool maximum, bool> using IndexedRows = RowsForward<S, maximum, maximum>;
template <class S, bool maximum, bool> using IndexedWholePlanes = WholePlanesForward<S, maximum, maximum>;

template <class S> KernelList list() {
  static constexpr Kernel kernels[] = {
      kernel<Means<ChannelsMean<S>>>("mean_channels"),
      kernel<Means<PlanesMean<S>>>("mean_planes"),
      kernel<Forwards<S, ChannelsForward>>("windows_channels"),
      kernel<Forwards<S, IndexedRows>>("windows_rows"),
      kernel<Forwards<S, IndexedWholePlanes>>("windows_whole_planes"),
      kernel<Forwards<S, TilesForward>>("windows_tiles"),
  };
  return {kernels, sizeof kernels / sizeof *kernels};
}

}  // namespace

POOLTIDE_KERNELS(forwards, list)

}  // namespace pooltide
