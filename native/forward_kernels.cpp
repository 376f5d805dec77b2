// The forward kernels of one instruction set, POOLTIDE_ISA; compiled once for each.

#include "windows.h"

#define NAME_(isa) forward_##isa
#define NAME(isa) NAME_(isa)
#define TEXT_(isa) #isa
#define TEXT(isa) TEXT_(isa)

namespace pooltide {
const ForwardKernels NAME(POOLTIDE_ISA) = {TEXT(POOLTIDE_ISA), forward_units, forward_scratch, run_forward};
}  // namespace pooltide
