// Random geometries through every kernel of this machine, against loops that follow the formula.
//
//     check [SECONDS] [SEED]
//
// Exits 0 when every result has the same bits (NaN equals NaN) and every bad index was reported.
// Built for sanitizers and for other processors, where Python and NumPy are not at hand.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "prepared.h"

using namespace pooltide;

namespace {

std::mt19937_64 random_bits(1);
int64_t draw(int64_t low, int64_t high) { return low + int64_t(random_bits() % uint64_t(high - low + 1)); }

struct Windows {
  int64_t cells = 1;
  std::vector<int64_t> start, end, divisor, first, count;

  void finish() {
    for (int64_t i = 0; i < cells; i++) {
      int64_t begun = 0, ended = 0;
      for (size_t o = 0; o < start.size(); o++) begun += start[o] <= i, ended += end[o] <= i;
      first.push_back(ended), count.push_back(std::max<int64_t>(0, begun - ended));
    }
  }
  AxisTables tables() const {
    return {first.data(), count.data(), divisor.data(), cells, int64_t(start.size())};
  }
};

Windows adaptive(int64_t cells, int64_t outputs) {
  Windows w;
  w.cells = cells;
  for (int64_t o = 0; o < outputs; o++) {
    w.start.push_back(o * cells / outputs), w.end.push_back(((o + 1) * cells + outputs - 1) / outputs);
    w.divisor.push_back(w.end.back() - w.start.back());
  }
  w.finish();
  return w;
}

Windows strided(int64_t cells, bool padding_counts) {
  Windows w;
  w.cells = cells;
  int64_t k = draw(1, std::min<int64_t>(cells, 9)), s = draw(1, 4), p = draw(0, k / 2);
  for (int64_t o = 0; o <= (cells + 2 * p - k) / s; o++) {
    int64_t start = o * s - p, end = std::min(start + k, cells + p);
    w.start.push_back(std::max<int64_t>(start, 0)), w.end.push_back(std::min(end, cells));
    w.divisor.push_back(padding_counts ? end - start : w.end.back() - w.start.back());
  }
  w.finish();
  return w;
}

// The halves through bits alone, apart from the kernels' ways.
float widen(uint16_t h, Store store) {
  if (store == Store::bf16) {
    uint32_t u = uint32_t(h) << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
  }
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  double v = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) v = mantissa ? NAN : INFINITY;
  return float(h & 0x8000 ? -v : v);
}

uint16_t narrow(float f, Store store) {
  if (std::isnan(f)) return 0x7FC0;
  // The nearest of all 65536 candidates is found by bisection over the ordered positive ones.
  uint16_t sign = std::signbit(f) ? 0x8000 : 0, low = 0, high = store == Store::bf16 ? 0x7F80 : 0x7C00;
  double x = std::fabs(double(f));
  while (high - low > 1) {
    uint16_t middle = uint16_t((low + high) / 2);
    (double(widen(middle, store)) <= x ? low : high) = middle;
  }
  double below = widen(low, store);
  double above = std::isinf(widen(high, store)) ? 2 * below - widen(uint16_t(low - 1), store) : widen(high, store);
  if (std::isinf(x)) return sign | high;
  bool up = x - below > above - x || (x - below == above - x && (low & 1));
  return sign | (up ? high : low);
}

struct Trial {
  Problem facts;
  Windows d, h, w;
  int64_t planes, cells, windows;
  std::vector<char> grad, indices;
  std::vector<double> sums;  // of the formula, in (N, C, D, H, W) order; each rounded as its type
  Fault fault;

  int64_t at(int64_t plane, int64_t i, int64_t size) const {  // where element i of a plane lies
    if (!facts.channels_last) return plane * size + i;
    return (plane / facts.channels * size + i) * facts.channels + plane % facts.channels;
  }
  double gradient(int64_t plane, int64_t q) const {
    const char* p = grad.data() + at(plane, q, windows) * facts.itemsize();
    return value(p);
  }
  double value(const char* p) const {
    if (facts.store == Store::f64) { double x; memcpy(&x, p, 8); return x; }
    if (facts.store == Store::f32) { float x; memcpy(&x, p, 4); return x; }
    uint16_t x;
    memcpy(&x, p, 2);
    return widen(x, facts.store);
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
        int64_t index = 0;
        const char* p = t.indices.data() + t.at(plane, q, t.windows) * f.index_bytes;
        if (f.index_bytes == 4) { int32_t i; memcpy(&i, p, 4); index = i; } else memcpy(&index, p, 8);
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

Trial draw_trial() {
  static const int64_t sizes[] = {1, 2, 3, 5, 7, 11, 13, 17, 23, 31, 37, 67};
  auto size = [] { return sizes[draw(0, 11)]; };
  Trial t;
  Problem& f = t.facts;
  f.kind = draw(0, 2) ? Kind::average : Kind::indexed;
  f.store = Store(draw(0, 3));
  f.quotient = Quotient(draw(0, 2));
  f.divisor = f.quotient == Quotient::constant ? double(draw(-9, 9) * 2 + 1) : 1;
  f.channels_last = draw(0, 1);
  f.index_bytes = f.kind == Kind::indexed ? int(4 * draw(1, 2)) : 0;
  f.batch = draw(1, 2), f.channels = draw(0, 1) ? draw(1, 4) : draw(15, 35);
  bool counted = draw(0, 1), steps = f.kind == Kind::average && f.quotient != Quotient::chained;
  auto axis = [&] { return steps ? strided(size(), counted) : adaptive(size(), draw(0, 3) ? draw(1, 9) : size()); };
  t.d = draw(0, 1) ? adaptive(1, 1) : axis();
  t.h = axis(), t.w = axis();
  t.planes = f.batch * f.channels;
  t.cells = t.d.cells * t.h.cells * t.w.cells;
  t.windows = int64_t(t.d.start.size() * t.h.start.size() * t.w.start.size());
  t.grad.resize(size_t(t.planes * t.windows * f.itemsize()));
  t.indices.resize(size_t(t.planes * t.windows * f.index_bytes));
  bool special = draw(0, 3) == 0, astray = draw(0, 3) == 0;
  for (int64_t i = 0; i < t.planes * t.windows; i++) {
    double x = double(draw(-1000000, 1000000)) / 65536 * (draw(0, 9) ? 1 : 1e-5);
    if (special && draw(0, 9) == 0) x = (const double[]){0.0, -0.0, NAN, INFINITY, 1e-40}[draw(0, 4)];
    float narrow32 = float(x);
    uint16_t half = narrow(narrow32, f.store);
    if (f.store == Store::f64) memcpy(&t.grad[size_t(i * 8)], &x, 8);
    else if (f.store == Store::f32) memcpy(&t.grad[size_t(i * 4)], &narrow32, 4);
    else memcpy(&t.grad[size_t(i * 2)], &half, 2);
    int64_t wide = draw(0, t.cells - 1);
    if (astray && draw(0, 19) == 0) wide = (const int64_t[]){-1, t.cells, INT32_MIN, INT32_MAX}[draw(0, 3)];
    if (astray && f.index_bytes == 8 && draw(0, 19) == 0) wide = (int64_t{1} << 40) + 1;
    int32_t slim = int32_t(wide);
    if (f.index_bytes == 4) memcpy(&t.indices[size_t(i * 4)], &slim, 4);
    if (f.index_bytes == 8) memcpy(&t.indices[size_t(i * 8)], &wide, 8);
  }
  t.sums.assign(size_t(t.planes * t.cells), 0);
  f.store == Store::f64 ? follow_formula<double>(t) : follow_formula<float>(t);
  return t;
}

bool same(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b); }

bool agrees(const Trial& t, int threads) {
  Prepared prepared(t.facts, t.d.tables(), t.h.tables(), t.w.tables());
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
      if (!same(want, t.value(out.data() + shift + t.at(plane, i, t.cells) * item))) return false;
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
    trials++;
  } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds);
  std::string names;
  for (const Kernels* k : instruction_sets()) names += std::string(" ") + k->name;
  std::printf("%ld trials agree on:%s\n", trials, names.c_str());
}
