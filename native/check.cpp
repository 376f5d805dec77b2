// Random geometries through every kernel of this machine, against loops that follow the formula.
//
//     check [SECONDS] [SEED]
//
// Exits 0 when every result has the same bits (NaN equals NaN) and every bad index was reported.
// Built for sanitizers and for other processors, where Python and NumPy are not at hand.

#include "check.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace pooltide;

std::mt19937_64 pooltide::random_bits(1);

namespace {

struct Trial {
  Problem facts;
  Windows d, h, w;
  int64_t planes, cells, windows;
  std::vector<char> grad, indices;
  std::vector<int64_t> jump;
  std::vector<double> sums;  // of the formula, in (N, C, D, H, W) order; each rounded as its type
  Fault fault;

  int64_t at(int64_t plane, int64_t i, int64_t size) const {
    return lies_at(facts.channels_last, facts.channels, plane, i, size);
  }
  double gradient(int64_t plane, int64_t q) const {
    return value_at(grad.data() + at(plane, q, windows) * facts.itemsize(), facts.store);
  }
  int64_t index(int64_t plane, int64_t q) const {
    const char* p = indices.data() + at(plane, q, windows) * facts.index_bytes;
    int64_t wide = 0;
    int32_t slim;
    if (facts.index_bytes == 8) memcpy(&wide, p, 8);
    if (facts.index_bytes == 4) memcpy(&slim, p, 4), wide = slim;
    if (facts.index_bytes == 1) wide = corner(q) + jump[uint8_t(*p)];
    return wide;
  }
  int64_t corner(int64_t q) const {
    int64_t wo = int64_t(w.start.size()), ho = int64_t(h.start.size());
    return (d.start[size_t(q / wo / ho)] * h.cells + h.start[size_t(q / wo % ho)]) * w.cells + w.start[size_t(q % wo)];
  }
};

template <class T> void follow_formula(Trial& t) {
  const Problem& f = t.facts;
  int64_t wo = int64_t(t.w.start.size()), ho = int64_t(t.h.start.size());
  for (int64_t plane = 0; plane < t.planes; plane++) {
    double* sums = t.sums.data() + plane * t.cells;
    for (int64_t q = 0; q < t.windows; q++) {
      int64_t ow = q % wo, oh = q / wo % ho, od = q / wo / ho;
      T g = T(t.gradient(plane, q));
      if (f.kind == Kind::indexed) {
        int64_t index = t.index(plane, q);
        if (index < 0 || index >= t.cells) t.fault.add(plane * t.windows + q, index);
        else sums[index] = T(sums[index]) + g;
        continue;
      }
      volatile T quotient = g;  // one rounding at each step
      if (f.quotient == Quotient::chained) {
        for (int64_t by : {t.d.divisor[od], t.h.divisor[oh], t.w.divisor[ow]}) quotient = quotient / T(by);
      } else {
        int64_t product = t.d.divisor[od] * t.h.divisor[oh] * t.w.divisor[ow];
        quotient = quotient / T(f.quotient == Quotient::constant ? f.divisor : double(product));
      }
      for (int64_t i = t.d.start[od]; i < t.d.end[od]; i++)
        for (int64_t j = t.h.start[oh]; j < t.h.end[oh]; j++)
          for (int64_t k = t.w.start[ow]; k < t.w.end[ow]; k++) {
            double& sum = sums[(i * t.h.cells + j) * t.w.cells + k];
            volatile T added = T(sum) + quotient;
            sum = added;
          }
    }
  }
}

// Indices of one byte count through the cells of the largest window; the rest jump out of the plane.
void make_offsets(Trial& t) {
  int64_t d = t.d.most(), h = t.h.most(), w = t.w.most();
  if (d * h * w > kOffsets) return;
  t.facts.index_bytes = 1;
  t.jump.assign(kOffsets, -(int64_t{1} << 62));
  for (int64_t i = 0; i < d * h * w; i++)
    t.jump[size_t(i)] = (i / w / h * t.h.cells + i / w % h) * t.w.cells + i % w;
  t.facts.jump = t.jump.data();
}

// A cell of the window that element i belongs to: its index, or its offset.
int64_t draw_own(const Trial& t, int64_t i) {
  const Problem& f = t.facts;
  int64_t wo = int64_t(t.w.start.size()), ho = int64_t(t.h.start.size());
  int64_t q = f.channels_last ? i / f.channels % t.windows : i % t.windows;
  auto within = [](const Windows& w, int64_t o) { return draw(0, w.end[size_t(o)] - w.start[size_t(o)] - 1); };
  int64_t a = within(t.d, q / wo / ho), b = within(t.h, q / wo % ho), c = within(t.w, q % wo);
  if (f.index_bytes == 1) return (a * t.h.most() + b) * t.w.most() + c;
  return t.corner(q) + (a * t.h.cells + b) * t.w.cells + c;
}

void draw_index(Trial& t, int64_t i, bool own, bool astray) {
  int64_t wide = own ? draw_own(t, i) : draw(0, t.cells - 1);
  if (t.facts.index_bytes == 1) {
    t.indices[size_t(i)] = char(astray ? draw(0, 255) : own ? wide : 0);
    return;
  }
  if (astray && draw(0, 19) == 0) wide = (const int64_t[]){-1, t.cells, INT32_MIN, INT32_MAX}[draw(0, 3)];
  if (astray && t.facts.index_bytes == 8 && draw(0, 19) == 0) wide = (int64_t{1} << 40) + 1;
  int32_t slim = int32_t(wide);
  if (t.facts.index_bytes == 4) memcpy(&t.indices[size_t(i * 4)], &slim, 4);
  if (t.facts.index_bytes == 8) memcpy(&t.indices[size_t(i * 8)], &wide, 8);
}

Trial draw_trial() {
  Trial t;
  Problem& f = t.facts;
  f.kind = draw(0, 1) ? Kind::average : Kind::indexed;
  f.store = Store(draw(0, 3));
  f.quotient = Quotient(draw(0, 2));
  f.divisor = f.quotient == Quotient::constant ? double(draw(-9, 9) * 2 + 1) : 1;
  f.channels_last = draw(0, 1);
  f.index_bytes = f.kind == Kind::indexed ? int(4 * draw(1, 2)) : 0;
  f.batch = draw(1, 2), f.channels = draw(0, 1) ? draw(1, 4) : draw(15, 35);
  bool counted = draw(0, 1), steps = f.kind == Kind::average && f.quotient != Quotient::chained;
  auto axis = [&] {
    return steps ? strided(draw_size(), counted) : adaptive(draw_size(), draw(0, 3) ? draw(1, 9) : draw_size());
  };
  t.d = draw(0, 1) ? adaptive(1, 1) : axis();
  t.h = axis(), t.w = axis();
  if (f.kind == Kind::indexed && draw(0, 2) == 0) make_offsets(t);
  t.planes = f.batch * f.channels;
  t.cells = t.d.cells * t.h.cells * t.w.cells;
  t.windows = int64_t(t.d.start.size() * t.h.start.size() * t.w.start.size());
  t.grad.resize(size_t(t.planes * t.windows * f.itemsize()));
  t.indices.resize(size_t(t.planes * t.windows * f.index_bytes));
  bool special = draw(0, 3) == 0, astray = draw(0, 3) == 0, own = draw(0, 1);
  for (int64_t i = 0; i < t.planes * t.windows; i++) {
    put_at(&t.grad[size_t(i * f.itemsize())], f.store, draw_number(special));
    if (f.kind == Kind::indexed) draw_index(t, i, own, astray);
  }
  t.sums.assign(size_t(t.planes * t.cells), 0);
  f.store == Store::f64 ? follow_formula<double>(t) : follow_formula<float>(t);
  return t;
}

bool agrees(const Trial& t, int threads) {
  bool starts = t.facts.kind == Kind::indexed;
  Prepared prepared(t.facts, t.d.tables(starts), t.h.tables(starts), t.w.tables(starts));
  int64_t item = t.facts.itemsize(), shift = draw(0, 9) * item;  // odd alignments, exact bounds
  std::vector<char> out(size_t(shift + t.planes * t.cells * item), char(0xFF));
  Arrays arrays;
  arrays.grad = t.grad.data(), arrays.indices = t.indices.data(), arrays.out = out.data() + shift;
  Fault fault = prepared.run(arrays, threads, draw(0, 1) ? 0 : INT64_MAX);
  if (fault.count != t.fault.count || fault.position != t.fault.position || fault.value != t.fault.value) return false;
  for (int64_t plane = 0; plane < t.planes; plane++)
    for (int64_t i = 0; i < t.cells; i++) {
      double want = t.sums[size_t(plane * t.cells + i)];
      if (item == 2) want = widen(narrow(float(want), t.facts.store), t.facts.store);
      if (!same(want, value_at(out.data() + shift + t.at(plane, i, t.cells) * item, t.facts.store))) return false;
    }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  random_bits.seed(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  auto begin = std::chrono::steady_clock::now();
  long trials = 0;
  do {
    Trial t = draw_trial();
    for (const Kernels* k : instruction_sets())
      for (int threads : {1, 3}) {
        use_instruction_set(k->name);
        if (agrees(t, threads)) continue;
        const Problem& f = t.facts;
        std::printf("FAILED trial %ld: %s kind %d store %d quotient %d channels_last %d %lldx%lld planes, cells "
                    "%lldx%lldx%lld, windows %zux%zux%zu, threads %d\n", trials, k->name, int(f.kind), int(f.store),
                    int(f.quotient), f.channels_last, (long long)f.batch, (long long)f.channels,
                    (long long)t.d.cells, (long long)t.h.cells, (long long)t.w.cells, t.d.start.size(),
                    t.h.start.size(), t.w.start.size(), threads);
        return 1;
      }
    if (!check_forward()) return 1;
    trials++;
  } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds);
  std::string names;
  for (const Kernels* k : instruction_sets()) names += std::string(" ") + k->name;
  std::printf("%ld trials agree on:%s\n", trials, names.c_str());
}
