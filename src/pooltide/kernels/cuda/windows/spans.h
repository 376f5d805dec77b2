// The windows of each axis: p.tables has, for d, h and w in turn, the first cell of each window inside the axis, then
// how many cells each window has inside the axis.
#pragma once

struct Span {
  int first, count;  // cells inside the axis
};

__device__ __forceinline__ Span span_d(const Parameters &p, int o) {
  const Span found = {p.tables[o], p.tables[p.Do + o]};
  return found;
}
__device__ __forceinline__ Span span_h(const Parameters &p, int o) {
  const int *table = p.tables + 2 * p.Do;
  const Span found = {table[o], table[p.Ho + o]};
  return found;
}
__device__ __forceinline__ Span span_w(const Parameters &p, int o) {
  const int *table = p.tables + 2 * (p.Do + p.Ho);
  const Span found = {table[o], table[p.Wo + o]};
  return found;
}

// From the first cell of one window to the last cell of a later one.
__device__ __forceinline__ Span from_to(const Span &first, const Span &last) {
  const Span found = {first.first, last.first + last.count - first.first};
  return found;
}
