// What the checks of gradients and forwards share: random windows, and halves through bits alone.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "prepared.h"

namespace pooltide {

extern std::mt19937_64 random_bits;
inline int64_t draw(int64_t low, int64_t high) { return low + int64_t(random_bits() % uint64_t(high - low + 1)); }

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
  AxisTables tables(bool starts = false) const {
    return {first.data(), count.data(), starts ? start.data() : divisor.data(), cells, int64_t(start.size())};
  }
  int64_t most() const {
    int64_t found = 0;
    for (size_t o = 0; o < start.size(); o++) found = std::max(found, end[o] - start[o]);
    return found;
  }
};

inline Windows adaptive(int64_t cells, int64_t outputs) {
  Windows w;
  w.cells = cells;
  for (int64_t o = 0; o < outputs; o++) {
    w.start.push_back(o * cells / outputs), w.end.push_back(((o + 1) * cells + outputs - 1) / outputs);
    w.divisor.push_back(w.end.back() - w.start.back());
  }
  w.finish();
  return w;
}

inline Windows strided(int64_t cells, bool padding_counts) {
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
inline float widen(uint16_t h, Store store) {
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

inline uint16_t narrow(float f, Store store) {
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

inline int64_t size_of(Store store) { return store == Store::f64 ? 8 : store == Store::f32 ? 4 : 2; }

inline double value_at(const char* p, Store store) {
  if (store == Store::f64) { double x; memcpy(&x, p, 8); return x; }
  if (store == Store::f32) { float x; memcpy(&x, p, 4); return x; }
  uint16_t x;
  memcpy(&x, p, 2);
  return widen(x, store);
}

inline void put_at(char* p, Store store, double x) {
  float narrow32 = float(x);
  uint16_t half = size_of(store) == 2 ? narrow(narrow32, store) : 0;
  memcpy(p, store == Store::f64 ? (void*)&x : store == Store::f32 ? (void*)&narrow32 : (void*)&half,
         size_t(size_of(store)));
}

inline double draw_number(bool special) {
  double x = double(draw(-1000000, 1000000)) / 65536 * (draw(0, 9) ? 1 : 1e-5);
  if (special && draw(0, 9) == 0) x = (const double[]){0.0, -0.0, NAN, INFINITY, 1e-40}[draw(0, 4)];
  return x;
}

inline int64_t draw_size() {
  static const int64_t sizes[] = {1, 2, 3, 5, 7, 11, 13, 17, 23, 31, 37, 67};
  return sizes[draw(0, 11)];
}

inline bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

// Where element i of a plane lies.
inline int64_t lies_at(bool channels_last, int64_t channels, int64_t plane, int64_t i, int64_t size) {
  if (!channels_last) return plane * size + i;
  return (plane / channels * size + i) * channels + plane % channels;
}

// One random forward on all instruction sets; says what failed.
bool check_forward();

}  // namespace pooltide
