// What check.cpp draws and compares with.
//
// Random axes with their tables, random numbers, and conversions between half types and float, bit by bit, so that
// the check does not use the conversions that it checks.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "../prepared.h"

namespace pooltide {

extern std::mt19937_64 random_bits;
inline int64_t draw(int64_t low, int64_t high) { return low + int64_t(random_bits() % uint64_t(high - low + 1)); }

// An axis with its tables per window.
struct AxisTables {
  int64_t cells = 1, dilation = 1;
  std::vector<int32_t> start, length, divisor;

  int64_t windows() const { return int64_t(start.size()); }
  int64_t longest() const { return *std::max_element(length.begin(), length.end()); }
  Axis axis() const {
    Axis result;
    result.cells = cells, result.windows = windows(), result.dilation = dilation;
    result.start = start.data(), result.length = length.data(), result.divisor = divisor.data();
    return result;
  }
  void add(int64_t first, int64_t count, int64_t by) {
    start.push_back(int32_t(first)), length.push_back(int32_t(count)), divisor.push_back(int32_t(by));
  }
};

inline AxisTables adaptive(int64_t cells, int64_t outputs) {
  AxisTables tables;
  tables.cells = cells;
  for (int64_t o = 0; o < outputs; o++) {
    int64_t start = o * cells / outputs, end = ((o + 1) * cells + outputs - 1) / outputs;
    tables.add(start, end - start, end - start);
  }
  return tables;
}

// Windows of k cells, `dilation` apart; with `three`, of 3 cells with stride 1 if the axis has 3 cells. Some
// windows may have no cell, because dilation steps over a short axis.
inline AxisTables strided(int64_t cells, bool padding_counts, int64_t dilation, bool three) {
  AxisTables tables;
  tables.cells = cells, tables.dilation = dilation;
  int64_t k = three && cells >= 3 ? 3 : draw(1, std::min<int64_t>(cells, 9)), s = three ? 1 : draw(1, 4);
  int64_t p = draw(0, k / 2), extent = dilation * (k - 1) + 1;
  if (cells + 2 * p < extent) tables.dilation = 1, extent = k;
  for (int64_t o = 0; o <= (cells + 2 * p - extent) / s; o++) {
    int64_t corner = o * s - p, skipped = corner < 0 ? (-corner + tables.dilation - 1) / tables.dilation : 0;
    int64_t first = corner + skipped * tables.dilation, inside = (cells - first + tables.dilation - 1) / tables.dilation;
    int64_t count = std::max<int64_t>(0, std::min(k - skipped, inside));
    tables.add(first, count, padding_counts ? std::min(corner + k, cells + p) - corner : count);
  }
  return tables;
}

// Half types converted bit by bit, in another way than the kernels do it.
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

// The position of element i of a plane of `size` elements.
inline int64_t position(const Problem& p, int64_t plane, int64_t i, int64_t size) {
  if (!p.channels_last) return plane * size + i;
  return (plane / p.channels * size + i) * p.channels + plane % p.channels;
}

}  // namespace pooltide
