// Problems with their expected results, from standard input, through every kernel of this machine.
//
// tests/support/replay.py writes them, so that processors without Python and PyTorch get the enumerated geometries, too.
// Exits 0 when every result has the expected bits (NaN equals NaN) and no byte beside a result changed.

#include "check.h"

#include <cstdio>
#include <cstdlib>

using namespace pooltide;

std::mt19937_64 pooltide::random_bits(1);

namespace {

constexpr size_t kGuard = 64, kHead = 17;  // bytes before and after each result; integers before each problem

// Returns false if the input ends before the first element; ends the program if it ends later.
template <class T> bool read(std::vector<T>& data, size_t count) {
  data.resize(count);
  size_t found = std::fread(data.data(), sizeof(T), count, stdin);
  if (found != 0 && found != count) std::puts("FAILED: the input ends inside a problem"), std::exit(1);
  return found == count;
}

// Memory for a result, `shift` bytes after an aligned address, between guard bytes. All bytes are 255.
struct Guarded {
  const std::vector<char>& want;
  size_t begin;
  std::vector<char> memory;

  Guarded(const std::vector<char>& want, size_t shift) : want(want), begin(kGuard + shift), memory(begin + want.size() + kGuard, char(0xFF)) {}
  char* data() { return memory.data() + begin; }
  bool guards_are_whole() const {
    auto poisoned = [](char byte) { return byte == char(0xFF); };
    return std::all_of(memory.begin(), memory.begin() + long(begin), poisoned) && std::all_of(memory.end() - kGuard, memory.end(), poisoned);
  }
  bool has_bytes() { return std::memcmp(data(), want.data(), want.size()) == 0; }
  bool has_numbers(Store store) {
    bool all = true;
    for (size_t i = 0; i < want.size(); i += size_t(size_of(store))) all = all && same(value_at(data() + i, store), value_at(&want[i], store));
    return all;
  }
};

struct Record {
  Problem facts;
  std::vector<int32_t> tables[9];
  std::vector<char> source, indices, want;  // indices: read by a gradient, expected of a maximum

  Record(const std::vector<int64_t>& head) {
    facts.kind = Kind(head[0]), facts.store = Store(head[1]), facts.quotient = Quotient(head[2]), facts.divisor = double(head[3]);
    facts.channels_last = head[4], facts.index_bytes = int(head[5]), facts.batch = head[6], facts.channels = head[7];
    Axis* axes[] = {&facts.d, &facts.h, &facts.w};
    for (size_t i = 0; i < 3; i++) {
      axes[i]->cells = head[8 + i], axes[i]->windows = head[11 + i], axes[i]->dilation = head[14 + i];
      for (size_t j = 3 * i; j < 3 * i + 3; j++) read(tables[j], size_t(axes[i]->windows));
      axes[i]->start = tables[3 * i].data(), axes[i]->length = tables[3 * i + 1].data(), axes[i]->divisor = tables[3 * i + 2].data();
    }
    read(source, size_t(facts.read_elements() * facts.itemsize()));
    read(indices, size_t(facts.planes() * facts.windows() * facts.index_bytes));
    read(want, size_t(facts.written_elements() * facts.itemsize()));
  }

  // Runs a kernel; returns whether all results are right.
  bool agrees(const PreparedProblem& prepared, const Forced& forced, size_t run) {
    Guarded out(want, run % 5 * size_t(facts.itemsize())), places(indices, run % 3 * size_t(facts.index_bytes));
    Arrays arrays;
    (facts.gradient() ? arrays.grad : arrays.input) = source.data();
    arrays.indices = facts.gradient() ? indices.data() : places.data(), arrays.out = out.data();
    Fault fault = prepared.run(arrays, run % 61 ? 1 : 3, forced);
    return fault.count == 0 && (facts.gradient() || places.has_bytes()) && places.guards_are_whole() && out.guards_are_whole() &&
           (out.has_bytes() || out.has_numbers(facts.store));
  }
};

}  // namespace

int main() {
  // As in tests/support/enumeration.py.
  const struct { int stream, chunk; bool tight; } kVariants[] = {{-1, 0, false}, {1, 1, true}, {0, 2, true}, {1, 0, false}, {0, 1, false}, {0, 0, true}};
  size_t problems = 0, runs = 0;
  for (std::vector<int64_t> head; read(head, kHead); problems++) {
    Record record(head);
    PreparedProblem prepared(record.facts);
    for (const InstructionSet* set : instruction_sets()) {
      use_instruction_set(set->name);
      KernelList list = prepared.kernels();
      for (const Kernel* kernel = list.first; kernel < list.first + list.count; kernel++) {
        if (kernel->refuse(prepared.problem(), true)) continue;
        const auto& variant = kVariants[runs * 5 % 7 % 6];
        Forced forced{kernel, variant.stream, variant.chunk, variant.tight};
        if (record.agrees(prepared, forced, runs++)) continue;
        std::printf("FAILED: %s %s stream %d chunk %d tight %d, problem", set->name, kernel->name, variant.stream, variant.chunk, variant.tight);
        for (int64_t each : head) std::printf(" %lld", (long long)each);
        return std::puts(""), 1;
      }
    }
  }
  std::printf("%zu problems, %zu runs agree\n", problems, runs);
}
