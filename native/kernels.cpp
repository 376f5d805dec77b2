// The kernels of one instruction set, POOLTIDE_ISA; compiled once for each.

#include "average.h"
#include "gathered.h"
#include "indexed_channels.h"

namespace pooltide {
namespace {

template <class S> int64_t scratch_of(const Problem& p, bool gather) {
  if (p.kind == Kind::average) return p.whole ? Whole<S>::scratch(p) : Average<S>::scratch(p);
  if (gather) return Gathered<S, int64_t>::scratch(p);
  if (p.channels_last) return IndexedChannels<S, int64_t>::scratch(p);
  return Indexed<S, int64_t>::scratch(p);  // whatever the indices are
}

template <class S> void begin_as(const Problem& p, const Arrays& arrays, void* block) {
  if (p.kind == Kind::indexed && !p.channels_last) Indexed<S, int64_t>(p, arrays, block).begin();
}

template <class S, class I>
void run_indexed(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* block, Fault& fault) {
  if (arrays.gather) return Gathered<S, I>(p, arrays, block).run(begin, end, fault);
  if (p.channels_last) return IndexedChannels<S, I>(p, arrays, block).run(begin, end, fault);
  Indexed<S, I>(p, arrays, block).run(begin, end, fault);
}

template <class S>
void run_as(const Problem& p, const Arrays& arrays, int64_t begin, int64_t end, void* block, Fault& fault) {
  if (p.kind == Kind::average) {
    if (p.whole) return Whole<S>::run(p, arrays, begin, end, block);
    return Average<S>(p, arrays, block).run(begin, end);
  }
  if (p.index_bytes == 1) return run_indexed<S, uint8_t>(p, arrays, begin, end, block, fault);
  if (p.index_bytes == 4) return run_indexed<S, int32_t>(p, arrays, begin, end, block, fault);
  run_indexed<S, int64_t>(p, arrays, begin, end, block, fault);
}

int64_t scratch(const Problem& p, const Arrays& arrays) {
  switch (p.store) {
    case Store::f32: return scratch_of<float>(p, arrays.gather);
    case Store::f64: return scratch_of<double>(p, arrays.gather);
    case Store::f16: return scratch_of<Half>(p, arrays.gather);
    default: return scratch_of<Bfloat>(p, arrays.gather);
  }
}

void begin(const Problem& p, const Arrays& arrays, void* block) {
  switch (p.store) {
    case Store::f32: return begin_as<float>(p, arrays, block);
    case Store::f64: return begin_as<double>(p, arrays, block);
    case Store::f16: return begin_as<Half>(p, arrays, block);
    default: return begin_as<Bfloat>(p, arrays, block);
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
const Kernels NAME(POOLTIDE_ISA) = {TEXT(POOLTIDE_ISA), lanes<float>, scratch, begin, run};

}  // namespace pooltide
