// Gradients of averages where one window holds the whole plane, as in global average pooling.
//
// Input: grad_output, one gradient per plane. Output: grad_input; all cells of a plane have the same value, the
// gradient divided by the divisor of the window. A unit is a plane.

#pragma once

#include "../simd/sink.h"
#include "quotients.h"

namespace pooltide {
namespace {

template <class S> class OneWindow {
  using T = typename Sum<S>::T;
  static constexpr int64_t L = lanes<S>, kBlock = 4096, kPlanes = 256;

 public:
  static const char* refuse(const Problem& p, bool) {
    if (p.channels_last) return "the arrays are channels-last";
    bool whole = holds_all(p.d) && holds_all(p.h) && holds_all(p.w);
    return whole ? nullptr : "a plane has more than one window, or cells outside its window";
  }
  static int64_t units(const Problem& p) { return p.planes(); }
  static constexpr int64_t kStage = Sink<S>::stage_size(kBlock);
  static int64_t scratch(const Problem&, const Arrays&) {
    Carve carve(nullptr);
    carve.take<S>(kStage);
    return carve.used();
  }

  static void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* scratch, Fault&) {
    int64_t cells = p.cells();
    const S* grad = (const S*)arrays.grad;
    S* out = (S*)arrays.out;
    Sink<S> sink(out + begin * cells, out + end * cells, Carve(scratch).take<S>(kStage), kStage, arrays.stream);
    const Division<T> by(p, 0, 0, 0);
    T quotients[kPlanes];
    S values[kPlanes];
    for (int64_t i = begin; i < end; i += kPlanes) {
      int64_t n = smaller(kPlanes, end - i);
      divide<S, T>({grad + i, 1, n, grad + end}, by, nullptr, 0, quotients);
      for (int64_t k = 0; k < n; k += L) store(values + k, load(quotients + k));
      for (int64_t k = 0; k < n; k++) fill(values[k], cells, sink);
    }
    sink.finish();
  }

 private:
  static bool holds_all(const Axis& axis) { return axis.windows == 1 && axis.length[0] == axis.cells; }

  static void fill(S value, int64_t cells, Sink<S>& sink) {
    S values[L];
    for (int i = 0; i < L; i++) values[i] = value;
    auto packed = read<PackedOf<S>>(values);
    while (cells > 0) {
      int64_t n = smaller(cells, kBlock);
      S* to = sink.reserve(n);
      for (int64_t i = 0; i < n; i += L) write(to + i, packed);
      sink.commit(to, n);
      cells -= n;
    }
  }
};

}  // namespace
}  // namespace pooltide
