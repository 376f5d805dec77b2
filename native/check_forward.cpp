// Random forwards, against loops that follow the formulas of windows.h and means.h.

#include "check.h"

#include <cstdio>

#include "forward.h"

namespace pooltide {
namespace {

// Windows as a forward sees them: those of an average, or of a maximum with dilation.
struct Side {
  int64_t cells = 1, step = 1;
  std::vector<int64_t> first, count, divisor;

  Side(const Windows& w) : cells(w.cells), first(w.start), divisor(w.divisor) {
    for (size_t o = 0; o < first.size(); o++) count.push_back(w.end[o] - w.start[o]);
  }
  void dilate(int64_t by) {
    step = by;
    for (int64_t& n : count) n = (n + by - 1) / by;
  }
  int64_t windows() const { return int64_t(first.size()); }
  int64_t most() const { return *std::max_element(count.begin(), count.end()); }
  WindowTables tables() const { return {first.data(), count.data(), divisor.data(), cells, windows(), step}; }
};

struct Answer {
  double value;
  int64_t place;
};

struct Trial {
  Pooling facts;
  Side d, h, w;
  std::vector<char> input;
  std::vector<Answer> answers;  // in (N, C, D, H, W) order

  int64_t planes() const { return facts.batch * facts.channels; }
  int64_t cells() const { return d.cells * h.cells * w.cells; }
  int64_t windows() const { return d.windows() * h.windows() * w.windows(); }
  int64_t at(int64_t plane, int64_t i, int64_t size) const {
    return lies_at(facts.channels_last, facts.channels, plane, i, size);
  }
  double cell(int64_t plane, int64_t i) const {
    return value_at(input.data() + at(plane, i, cells()) * facts.itemsize(), facts.store);
  }
  // `see(x, place)` for each cell of a window, in order.
  template <class F> void visit(int64_t plane, int64_t q, F see) const {
    size_t ow = size_t(q % w.windows()), oh = size_t(q / w.windows() % h.windows());
    size_t od = size_t(q / w.windows() / h.windows());
    for (int64_t i = 0; i < d.count[od]; i++)
      for (int64_t j = 0; j < h.count[oh]; j++)
        for (int64_t k = 0; k < w.count[ow]; k++) {
          int64_t index = ((d.first[od] + i * d.step) * h.cells + h.first[oh] + j * h.step) * w.cells +
                          w.first[ow] + k * w.step;
          see(cell(plane, index), facts.offsets ? (i * h.most() + j) * w.most() + k : index);
        }
  }
};

template <class T> Answer average(const Trial& t, int64_t plane, int64_t q) {
  const Pooling& f = t.facts;
  volatile T sums[16] = {};
  int parts = f.quotient == Quotient::mean ? 16 : 1, i = 0;
  t.visit(plane, q, [&](double x, int64_t) { sums[i % parts] = sums[i % parts] + T(x), i++; });
  for (int apart = parts / 2; apart > 0; apart /= 2)
    for (int k = 0; k < apart; k++) sums[k] = sums[k] + sums[k + apart];
  int64_t d = t.d.divisor[size_t(q / t.w.windows() / t.h.windows())];
  int64_t h = t.h.divisor[size_t(q / t.w.windows() % t.h.windows())], w = t.w.divisor[size_t(q % t.w.windows())];
  volatile T mean = sums[0];
  if (f.quotient == Quotient::chained) {
    for (int64_t by : {d, h, w}) mean = mean / T(by);
  } else {
    mean = mean / T(f.quotient == Quotient::constant ? f.divisor : double(d * h * w));
    if (f.quotient != Quotient::mean) mean = mean + T(0);
  }
  return {double(mean), 0};
}

Answer largest(const Trial& t, int64_t plane, int64_t q) {
  Answer best{-INFINITY, -1};
  t.visit(plane, q, [&](double x, int64_t place) {
    if (best.place < 0) best.place = place;
    if (x > best.value || std::isnan(x)) best = {x, place};
  });
  return best;
}

Trial draw_trial() {
  bool most = draw(0, 1), whole = draw(0, 4) == 0, mean = !most && whole && draw(0, 1), counted = draw(0, 1);
  Quotient quotient = mean ? Quotient::mean : Quotient(draw(0, 2));
  bool steps = !whole && (most ? draw(0, 1) : quotient != Quotient::chained);
  auto axis = [&] {
    Windows w = steps ? strided(draw_size(), counted)
                      : adaptive(draw_size(), whole ? 1 : draw(0, 3) ? draw(1, 9) : draw_size());
    Side side(w);
    if (most && draw(0, 2) == 0) side.dilate(draw(2, 3));
    return side;
  };
  Trial t{{}, draw(0, 1) ? Side(adaptive(1, 1)) : axis(), axis(), axis(), {}, {}};
  Pooling& f = t.facts;
  f.largest = most, f.indexed = most && draw(0, 3), f.store = Store(draw(0, 3)), f.quotient = quotient;
  f.offsets = f.indexed && draw(0, 1) && t.d.most() * t.h.most() * t.w.most() <= kOffsets;
  f.divisor = f.quotient == Quotient::constant ? double(draw(-9, 9) * 2 + 1) : 1;
  f.channels_last = draw(0, 1);
  f.batch = draw(1, 2), f.channels = draw(0, 1) ? draw(1, 4) : draw(15, 35);
  bool special = draw(0, 3) == 0;
  t.input.resize(size_t(t.planes() * t.cells() * f.itemsize()));
  for (int64_t i = 0; i < t.planes() * t.cells(); i++)
    put_at(&t.input[size_t(i * f.itemsize())], f.store, most && draw(0, 1) ? double(draw(-2, 2)) : draw_number(special));
  for (int64_t plane = 0; plane < t.planes(); plane++)
    for (int64_t q = 0; q < t.windows(); q++)
      t.answers.push_back(most                       ? largest(t, plane, q)
                          : f.store == Store::f64 ? average<double>(t, plane, q)
                                                  : average<float>(t, plane, q));
  return t;
}

bool agrees(const Trial& t, int threads) {
  Forward forward(t.facts, t.d.tables(), t.h.tables(), t.w.tables());
  int64_t item = t.facts.itemsize(), shift = draw(0, 9) * item, n = t.planes() * t.windows();
  int64_t wide = t.facts.index_bytes();
  std::vector<char> out(size_t(shift + n * item), char(0xFF)), places(t.facts.indexed ? size_t(n * wide) : 0, char(0xFF));
  forward.run({t.input.data(), out.data() + shift, t.facts.indexed ? places.data() : nullptr}, threads);
  for (int64_t plane = 0; plane < t.planes(); plane++)
    for (int64_t q = 0; q < t.windows(); q++) {
      const Answer& want = t.answers[size_t(plane * t.windows() + q)];
      int64_t at = t.at(plane, q, t.windows()), place = 0;
      double value = item == 2 ? widen(narrow(float(want.value), t.facts.store), t.facts.store) : want.value;
      if (!same(value, value_at(out.data() + shift + at * item, t.facts.store))) return false;
      if (!t.facts.indexed) continue;
      memcpy(&place, places.data() + at * wide, size_t(wide));
      if (place != want.place) return false;
    }
  return true;
}

}  // namespace

bool check_forward() {
  Trial t = draw_trial();
  for (const Kernels* k : instruction_sets())
    for (int threads : {1, 3}) {
      use_instruction_set(k->name);
      if (agrees(t, threads)) continue;
      const Pooling& f = t.facts;
      std::printf("FAILED forward: %s largest %d indexed %d offsets %d store %d quotient %d channels_last %d "
                  "%lldx%lld planes, cells %lldx%lldx%lld, windows %lldx%lldx%lld, threads %d\n", k->name,
                  f.largest, f.indexed, f.offsets, int(f.store), int(f.quotient), f.channels_last,
                  (long long)f.batch, (long long)f.channels, (long long)t.d.cells, (long long)t.h.cells,
                  (long long)t.w.cells, (long long)t.d.windows(), (long long)t.h.windows(),
                  (long long)t.w.windows(), threads);
      return false;
    }
  return true;
}

}  // namespace pooltide
