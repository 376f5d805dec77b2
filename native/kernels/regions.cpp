// The kernel of pools over regions of interest, and of their gradients.

#include <type_traits>

#include "../regions/forward.h"
#include "../regions/gradient.h"
#include "list.h"

namespace pooltide {
namespace {

template <class S> int64_t scratch(const Regions& r, const RegionArrays& a, int64_t rows, bool staged) {
  return r.gradient ? RegionGradient<S>(r, a, rows, nullptr).scratch() : RegionForward<S>(r, a, staged, nullptr).scratch();
}

template <class S> void run(const Regions& r, const RegionArrays& a, const RegionUnit& u, void* scratch, Fault& fault) {
  IeeeMode ieee;
  if (r.gradient) RegionGradient<S>(r, a, u.row_end - u.row_begin, scratch).run(u, fault);
  else RegionForward<S>(r, a, u.staged, scratch).run(u);
}

template <class S> RegionKernel regions() { return {kBlock, scratch<S>, run<S>}; }

}  // namespace

RegionKernel POOLTIDE_JOIN(regions, POOLTIDE_ISA)(Store store) {
  switch (store) {
    case Store::f32: return regions<float>();
    case Store::f64: return regions<double>();
    case Store::f16: return regions<Half>();
    default: return regions<Bfloat>();
  }
}

}  // namespace pooltide
