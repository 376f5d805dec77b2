// The forward kernels of one instruction set, POOLTIDE_ISA; compiled once for each.

#include "means.h"
#include "windows_channels.h"
#include "windows_planes.h"
#include "windows_rows.h"

#define NAME_(isa) forward_##isa
#define NAME(isa) NAME_(isa)
#define TEXT_(isa) #isa
#define TEXT(isa) TEXT_(isa)

namespace pooltide {
namespace {

// Calls `use` with the kernel K that gives averages, maxima, or maxima and their places.
template <class S, template <class, bool, bool> class K, class F> inline auto with_kind(const Pooling& p, F use) {
  if (!p.largest) return use((K<S, false, false>*)nullptr);
  if (!p.indexed) return use((K<S, true, false>*)nullptr);
  return use((K<S, true, true>*)nullptr);
}
// Calls `use` with a kernel made for a pooling's storage type, layout and question.
template <class S, class F> inline auto with_forward_of(const Pooling& p, F use) {
  if (p.quotient == Quotient::mean && p.channels_last) return use((ChannelsMean<S>*)nullptr);
  if (p.quotient == Quotient::mean) return use((PlanesMean<S>*)nullptr);
  if (p.channels_last) return with_kind<S, ChannelsForward>(p, use);
  if (RowsForward<S, false, false>::pays(p)) return with_kind<S, RowsForward>(p, use);
  if (WholePlanes<S, false, false>::pays(p)) return with_kind<S, WholePlanes>(p, use);
  return with_kind<S, PlanesForward>(p, use);
}
template <class F> inline auto with_forward(const Pooling& p, F use) {
  switch (p.store) {
    case Store::f32: return with_forward_of<float>(p, use);
    case Store::f64: return with_forward_of<double>(p, use);
    case Store::f16: return with_forward_of<Half>(p, use);
    default: return with_forward_of<Bfloat>(p, use);
  }
}

int64_t forward_units(const Pooling& p) {
  return with_forward(p, [&](auto* kernel) { return kernel->units(p); });
}
int64_t forward_scratch(const Pooling& p) {
  return with_forward(p, [&](auto* kernel) { return kernel->scratch(p); });
}
template <class K>
void run_forward_as(K*, const Pooling& p, const PoolingArrays& arrays, int64_t begin, int64_t end, void* block) {
  K(p, arrays, block).run(begin, end);
}
void run_forward(const Pooling& p, const PoolingArrays& arrays, int64_t begin, int64_t end, void* block) {
  IeeeMode ieee;
  with_forward(p, [&](auto* kernel) { run_forward_as(kernel, p, arrays, begin, end, block); });
}

}  // namespace

const ForwardKernels NAME(POOLTIDE_ISA) = {TEXT(POOLTIDE_ISA), forward_units, forward_scratch, run_forward};
}  // namespace pooltide
