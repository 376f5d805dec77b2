// What the three lists of kernels share: average_gradients.cpp, maximum_gradients.cpp and forwards.cpp.
//
// Each of these files is compiled once for each instruction set, POOLTIDE_ISA, and defines one function, for example
// `forwards_avx2`, which returns the list of a storage type. The first kernel of a list that does not refuse a problem
// computes it. A kernel refuses problems that it can't compute, and problems that a later kernel computes faster.

#pragma once

#include "../problem.h"
#include "../simd/lanes.h"

namespace pooltide {
namespace {

template <void (*run)(const Problem&, const Arrays&, int64_t, int64_t, void*, Fault&)>
void run_ieee(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* scratch, Fault& fault) {
  IeeeMode ieee;
  run(p, arrays, begin, end, scratch, fault);
}

constexpr int64_t kStreamBytes = 32 << 20;  // Kernel::stream_bytes

template <class K> constexpr Kernel kernel(const char* name) {
  return {name, kStreamBytes, K::refuse, K::units, K::scratch, nullptr, run_ieee<K::run>};
}

template <class P> struct PointedBy;
template <class X> struct PointedBy<X*> { using Type = X; };
template <class P> using Pointed = typename PointedBy<P>::Type;

}  // namespace

// Defines NAME_isa(Store), which returns `LIST<S>()` for the storage type S.
#define POOLTIDE_JOIN_(name, isa) name##_##isa
#define POOLTIDE_JOIN(name, isa) POOLTIDE_JOIN_(name, isa)
#define POOLTIDE_KERNELS(name, list)                           \
  KernelList POOLTIDE_JOIN(name, POOLTIDE_ISA)(Store store) {  \
    switch (store) {                                           \
      case Store::f32: return list<float>();                   \
      case Store::f64: return list<double>();                  \
      case Store::f16: return list<Half>();                    \
      default: return list<Bfloat>();                          \
    }                                                          \
  }

}  // namespace pooltide
