// The kernels for gradients of averages, in order.

#include "../gradient/average.h"
#include "../gradient/long_row.h"
#include "../gradient/one_window.h"
#include "../gradient/small_planes.h"
#include "list.h"

namespace pooltide {
namespace {

// One layout of lines.
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
  };
  return {kernels, sizeof kernels / sizeof *kernels};
}

}  // namespace

POOLTIDE_KERNELS(average_gradients, list)

}  // namespace pooltide
