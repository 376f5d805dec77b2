// Random problems of all kinds through every kernel of this machine, against loops that follow the formulas
// of problem.h.
//
//     check [TRIALS] [SEED]
//
// Exits 0 when every result has the expected bits (NaN equals NaN) and every bad index was reported.
// Built with sanitizers, and for processors where Python and NumPy are not at hand.

#include "check.h"

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

using namespace pooltide;

std::mt19937_64 pooltide::random_bits(1);

namespace {

struct Trial {
  Problem facts;
  AxisTables d, h, w;
  int64_t planes, cells, windows;
  std::vector<char> source, indices;  // indices: read by a gradient of maxima
  std::vector<double> expected;       // by the formula, in (N, C, D, H, W) order; sums rounded as their type
  std::vector<int64_t> expected_indices;  // of a maximum
  Fault fault;

  bool gradient() const { return facts.gradient(); }
  double element(int64_t plane, int64_t i) const {
    int64_t at = position(facts, plane, i, gradient() ? windows : cells);
    return value_at(source.data() + at * facts.itemsize(), facts.store);
  }
  // Calls use(cell, i, j, k) for each cell of a window, in order.
  template <class F> void visit(int64_t q, F use) const {
    int64_t ow = q % w.windows(), oh = q / w.windows() % h.windows(), od = q / w.windows() / h.windows();
    for (int64_t i = 0; i < d.length[od]; i++)
      for (int64_t j = 0; j < h.length[oh]; j++)
        for (int64_t k = 0; k < w.length[ow]; k++) use(corner(q) + jump(i, j, k), i, j, k);
  }
  int64_t corner(int64_t q) const {
    int64_t ow = q % w.windows(), oh = q / w.windows() % h.windows(), od = q / w.windows() / h.windows();
    return (int64_t{d.start[od]} * h.cells + h.start[oh]) * w.cells + w.start[ow];
  }
  int64_t jump(int64_t i, int64_t j, int64_t k) const {
    return (i * d.dilation * h.cells + j * h.dilation) * w.cells + k * w.dilation;
  }
  int64_t offset(int64_t i, int64_t j, int64_t k) const { return (i * h.longest() + j) * w.longest() + k; }
  // Of a gradient: the cell that window q's index names.
  int64_t index(int64_t plane, int64_t q) const {
    const char* p = indices.data() + position(facts, plane, q, windows) * facts.index_bytes;
    int64_t wide = 0;
    int32_t narrow32;
    if (facts.index_bytes == 8) memcpy(&wide, p, 8);
    if (facts.index_bytes == 4) memcpy(&narrow32, p, 4), wide = narrow32;
    if (facts.index_bytes != 1) return wide;
    int64_t o = uint8_t(*p), lh = h.longest(), lw = w.longest();
    if (o >= d.longest() * lh * lw) return corner(q) - (int64_t{1} << 62);
    return corner(q) + jump(o / lw / lh, o / lw % lh, o % lw);
  }
};

// A sum divided as the problem says; each step is rounded once.
template <class T> T quotient(const Trial& t, T value, int64_t q) {
  volatile T found = value;
  int64_t ow = q % t.w.windows(), oh = q / t.w.windows() % t.h.windows(), od = q / t.w.windows() / t.h.windows();
  int64_t by[] = {t.d.divisor[od], t.h.divisor[oh], t.w.divisor[ow]};
  if (t.facts.quotient == Quotient::chained) {
    for (int64_t each : by) found = found / T(each);
    return found;
  }
  found = found / T(t.facts.quotient == Quotient::constant ? t.facts.divisor : double(by[0] * by[1] * by[2]));
  bool keeps_zero = t.gradient() || t.facts.quotient == Quotient::mean;
  return keeps_zero ? T(found) : found + T(0);
}

template <class T> T mean_sum(const Trial& t, int64_t plane) {
  T sums[16] = {};
  for (int64_t i = 0; i < t.cells; i++) sums[i % 16] += T(t.element(plane, i));
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; i++) sums[i] += sums[i + step];
  return sums[0];
}

template <class T> void compute_expected(Trial& t) {
  for (int64_t plane = 0; plane < t.planes; plane++)
    for (int64_t q = 0; q < t.windows; q++) {
      double* out = t.expected.data() + plane * (t.gradient() ? t.cells : t.windows);
      if (t.facts.kind == Kind::maximum_gradient) {
        int64_t index = t.index(plane, q);
        if (index < 0 || index >= t.cells) t.fault.add(plane * t.windows + q, index);
        else out[index] = T(T(out[index]) + T(t.element(plane, q)));
      } else if (t.facts.kind == Kind::average_gradient) {
        T each = quotient(t, T(t.element(plane, q)), q);
        t.visit(q, [&](int64_t cell, int64_t, int64_t, int64_t) { out[cell] = T(T(out[cell]) + each); });
      } else if (t.facts.kind == Kind::average) {
        T sum = 0;
        t.visit(q, [&](int64_t cell, int64_t, int64_t, int64_t) { sum = T(sum + T(t.element(plane, cell))); });
        out[q] = quotient(t, t.facts.quotient == Quotient::mean ? mean_sum<T>(t, plane) : sum, q);
      } else {
        double best = -INFINITY;
        int64_t index = t.facts.index_bytes == 1 ? 0 : t.corner(q);
        t.visit(q, [&](int64_t cell, int64_t i, int64_t j, int64_t k) {
          double x = t.element(plane, cell);
          if (x > best || std::isnan(x)) best = x, index = t.facts.index_bytes == 1 ? t.offset(i, j, k) : cell;
        });
        out[q] = best, t.expected_indices[size_t(plane * t.windows + q)] = index;
      }
    }
}

// Returns an index, or offset, for window q. With in_window it names a cell of q, otherwise any cell. With
// `wrong` it may name no cell.
int64_t draw_index(const Trial& t, int64_t q, bool in_window, bool wrong) {
  int64_t cell = draw(0, t.cells - 1), offset = 0, pick = draw(0, 1 << 20), count = 0;
  t.visit(q, [&](int64_t, int64_t, int64_t, int64_t) { count++; });
  if (count) {
    pick %= count;
    t.visit(q, [&](int64_t at, int64_t i, int64_t j, int64_t k) {
      if (pick-- == 0) offset = t.offset(i, j, k), cell = in_window ? at : cell;
    });
  }
  if (t.facts.index_bytes == 1) return wrong && draw(0, 9) == 0 ? draw(0, 255) : offset;
  if (wrong && draw(0, 19) == 0) return (const int64_t[]){-1, t.cells, INT32_MIN, INT32_MAX}[draw(0, 3)];
  if (wrong && t.facts.index_bytes == 8 && draw(0, 19) == 0) return (int64_t{1} << 40) + 1;
  return cell;
}

void draw_axes(Trial& t) {
  const Problem& f = t.facts;
  bool counted = draw(0, 1), average = f.average(), three = draw(0, 3) == 0;
  bool steps = average ? f.quotient != Quotient::chained : draw(0, 1);
  int64_t dilation = average || draw(0, 1) ? 1 : draw(2, 4);
  auto axis = [&] {
    return steps ? strided(draw_size(), counted, dilation, three) : adaptive(draw_size(), draw(0, 3) ? draw(1, 9) : draw_size());
  };
  t.d = draw(0, 1) ? adaptive(1, 1) : axis();
  t.h = draw(0, 3) ? axis() : adaptive(1, 1);
  t.w = draw(0, 7) ? axis() : adaptive(1, 1);
  if (f.quotient == Quotient::mean)
    t.d = adaptive(draw(1, 3), 1), t.h = adaptive(draw_size(), 1), t.w = adaptive(draw_size(), 1);
}

Trial draw_trial() {
  Trial t;
  Problem& f = t.facts;
  f.kind = Kind(draw(0, 3));
  f.store = Store(draw(0, 3));
  f.quotient = Quotient(draw(0, f.kind == Kind::average ? 3 : 2));
  if (!f.average()) f.quotient = Quotient::chained;
  f.divisor = f.quotient == Quotient::constant ? double(draw(-9, 9) * 2 + 1) : 1;
  f.channels_last = draw(0, 1);
  f.batch = draw(1, 2), f.channels = draw(0, 1) ? draw(1, 4) : draw(15, 35);
  draw_axes(t);
  bool small = t.d.longest() * t.h.longest() * t.w.longest() <= kOffsets && t.d.longest() * t.h.longest() * t.w.longest() > 0;
  if (f.kind == Kind::maximum_gradient) f.index_bytes = small && draw(0, 2) == 0 ? 1 : int(4 * draw(1, 2));
  if (f.kind == Kind::maximum) f.index_bytes = (const int[]){0, 8, small ? 1 : 8}[draw(0, 2)];
  f.d = t.d.axis(), f.h = t.h.axis(), f.w = t.w.axis();
  t.planes = f.planes(), t.cells = f.cells(), t.windows = f.windows();
  int64_t read = f.read_elements();
  t.source.resize(size_t(read * f.itemsize()));
  bool special = draw(0, 3) == 0, wrong = draw(0, 3) == 0, in_window = draw(0, 1), ties = draw(0, 1);
  for (int64_t i = 0; i < read; i++)
    put_at(&t.source[size_t(i * f.itemsize())], f.store, ties && !f.average() ? double(draw(-3, 3)) : draw_number(special));
  if (f.kind == Kind::maximum_gradient) t.indices.resize(size_t(read * f.index_bytes));
  for (int64_t plane = 0; plane < t.planes && !t.indices.empty(); plane++)
    for (int64_t q = 0; q < t.windows; q++) {
      int64_t wide = draw_index(t, q, in_window, wrong);
      memcpy(&t.indices[size_t(position(f, plane, q, t.windows) * f.index_bytes)], &wide, size_t(f.index_bytes));
    }
  t.expected.assign(size_t(f.written_elements()), 0);
  t.expected_indices.assign(size_t(t.planes * t.windows), 0);
  f.store == Store::f64 ? compute_expected<double>(t) : compute_expected<float>(t);
  return t;
}

bool agrees(const Trial& t, const PreparedProblem& prepared, int threads, const Forced& forced) {
  int64_t item = t.facts.itemsize(), shift = draw(0, 9) * item, size = t.gradient() ? t.cells : t.windows;
  std::vector<char> out(size_t(shift + t.facts.written_elements() * item), char(0xFF));  // odd alignments, exact bounds
  std::vector<char> found_indices(t.gradient() ? 0 : size_t(t.planes * t.windows * t.facts.index_bytes), char(0xFF));
  std::vector<char> given = t.indices;
  Arrays arrays;
  (t.gradient() ? arrays.grad : arrays.input) = t.source.data();
  arrays.indices = t.gradient() ? given.data() : found_indices.data();
  arrays.out = out.data() + shift;
  Fault fault = prepared.run(arrays, threads, forced);
  if (fault.count != t.fault.count || fault.position != t.fault.position || fault.value != t.fault.value) return false;
  for (int64_t plane = 0; plane < t.planes; plane++)
    for (int64_t i = 0; i < size; i++) {
      double want = t.expected[size_t(plane * size + i)];
      if (item == 2) want = widen(narrow(float(want), t.facts.store), t.facts.store);
      int64_t at = position(t.facts, plane, i, size);
      if (!same(want, value_at(out.data() + shift + at * item, t.facts.store))) return false;
      if (found_indices.empty()) continue;
      int64_t index = 0;
      memcpy(&index, &found_indices[size_t(at * t.facts.index_bytes)], size_t(t.facts.index_bytes));
      if (index != t.expected_indices[size_t(plane * t.windows + i)]) return false;
    }
  return true;
}

void describe(const Trial& t, long trial, const char* set, const Kernel& kernel, const Forced& forced, int threads) {
  const Problem& f = t.facts;
  std::printf("FAILED trial %ld: %s %s kind %d store %d quotient %d index_bytes %d channels_last %d, %lld x %lld planes, "
              "cells %lldx%lldx%lld, windows %lldx%lldx%lld, stream %d chunk %lld tight %d threads %d\n", trial, set,
              kernel.name, int(f.kind), int(f.store), int(f.quotient), f.index_bytes, f.channels_last, (long long)f.batch,
              (long long)f.channels, (long long)t.d.cells, (long long)t.h.cells, (long long)t.w.cells,
              (long long)t.d.windows(), (long long)t.h.windows(), (long long)t.w.windows(), forced.stream,
              (long long)forced.chunk, forced.tight, threads);
}

// Replaces some indices by extreme ones, which no arithmetic before the check of an index may overflow.
void spoil(Trial& t) {
  const Problem& f = t.facts;
  const int64_t all[] = {-1, t.cells, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX, int64_t{1} << 31, int64_t{1} << 32,
                         -(int64_t{1} << 32), -(int64_t{1} << 31) - 1};
  for (size_t at = 0; at < t.indices.size(); at += size_t(f.index_bytes)) {
    if (draw(0, 4)) continue;
    int64_t extreme = f.index_bytes == 1 ? draw(0, 255) : all[draw(0, f.index_bytes == 8 ? 9 : 3)];
    memcpy(&t.indices[at], &extreme, size_t(f.index_bytes));
  }
  std::fill(t.expected.begin(), t.expected.end(), 0), t.fault = Fault();
  f.store == Store::f64 ? compute_expected<double>(t) : compute_expected<float>(t);
}

// Runs the trial on all kernels of this machine, and adds their names, with `suffix`, to `reached`.
bool run_trial(const Trial& t, long trial, const std::string& suffix, std::set<std::string>& reached) {
  PreparedProblem prepared(t.facts);
  for (const InstructionSet* set : instruction_sets()) {
    use_instruction_set(set->name);
    KernelList list = prepared.kernels();
    for (const Kernel* kernel = list.first; kernel < list.first + list.count; kernel++) {
      if (kernel->refuse(prepared.problem(), true)) continue;
      reached.insert(kernel->name + suffix);
      Forced forced;
      forced.kernel = kernel, forced.stream = int(draw(0, 1)), forced.chunk = draw(0, 3), forced.tight = draw(0, 1);
      int threads = draw(0, 1) ? 1 : 3;
      if (agrees(t, prepared, threads, forced)) continue;
      describe(t, trial, set->name, *kernel, forced, threads);
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  long trials = argc > 1 ? std::atol(argv[1]) : 100;
  random_bits.seed(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  std::set<std::string> reached, spoiled;
  for (long trial = 0; trial < trials; trial++) {
    Trial t = draw_trial();
    if (!run_trial(t, trial, "", reached)) return 1;
    if (t.indices.empty()) continue;
    std::mt19937_64 saved = random_bits;  // so that later trials are the same as without this one
    spoil(t);
    if (!run_trial(t, trial, " " + std::to_string(t.facts.index_bytes), spoiled)) return 1;
    random_bits = saved;
  }
  std::string sets;
  for (const InstructionSet* set : instruction_sets()) sets += std::string(" ") + set->name;
  std::printf("%ld trials agree, %zu kernels, %zu with extreme indices of some size, on:%s\n", trials, reached.size(),
              spoiled.size(), sets.c_str());
}
