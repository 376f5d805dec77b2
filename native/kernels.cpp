// The kernels of one instruction set, POOLTIDE_ISA; compiled once for each.

#include "average.h"
#include "indexed.h"

namespace pooltide {
namespace {

template <class S> int64_t scratch_of(const Problem& p) {
  if (p.kind == Kind::average) return p.whole ? Whole<S>::scratch(p) : Average<S>::scratch(p);
  return Indexed<S, int64_t>::scratch(p);  // whatever the indices are
}

template <class S>
void run_as(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* block, Fault& fault) {
  if (p.kind == Kind::average) {
    if (p.whole) return Whole<S>::run(p, arrays, begin, end, block);
    return Average<S>(p, arrays, block).run(begin, end);
  }
  if (p.index_bytes == 1) return Indexed<S, uint8_t>(p, arrays, block).run(begin, end, fault);
  if (p.index_bytes == 4) return Indexed<S, int32_t>(p, arrays, block).run(begin, end, fault);
  Indexed<S, int64_t>(p, arrays, block).run(begin, end, fault);
}

int64_t scratch(const Problem& p) {
  switch (p.store) {
    case Store::f32: return scratch_of<float>(p);
    case Store::f64: return scratch_of<double>(p);
    case Store::f16: return scratch_of<Half>(p);
    default: return scratch_of<Bfloat>(p);
  }
}

void run(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* block, Fault& fault) {
  IeeeMode ieee;
  switch (p.store) {
    case Store::f32: return run_as<float>(p, arrays, begin, end, block, fault);
    case Store::f64: return run_as<double>(p, arrays, begin, end, block, fault);
    case Store::f16: return run_as<Half>(p, arrays, begin, end, block, fault);
    default: return run_as<Bfloat>(p, arrays, begin, end, block, fault);
  }
}

}  // namespace

#define NAME_(isa) kernels_##isa
#define NAME(isa) NAME_(isa)
#define TEXT_(isa) #isa
#define TEXT(isa) TEXT_(isa)
const Kernels NAME(POOLTIDE_ISA) = {TEXT(POOLTIDE_ISA), scratch, run};

}  // namespace pooltide
