// Blocks of kBlock channels: how regions read, write and keep them.
//
// A kernel computes kBlock channels at once. In memory a channel of a block is `lane` elements after the one before,
// and a cell `cell` elements after the one before; a block in the scratch buffer has its channels side by side.

#pragma once

#include "../simd/lanes.h"
#include "boxes.h"

namespace pooltide {
namespace {

constexpr int64_t kBlock = 16;

// Where the channels of a unit are in an array of images, (N, C, H, W), or of regions, (K, C', PH, PW).
template <class S> struct Lattice {
  S* base;
  int64_t lane, cell;
};

template <class S> inline Lattice<S> image_block(const Regions& r, S* images, const RegionUnit& u, int64_t bin) {
  int64_t channel = u.channel * r.parts() + (r.position_sensitive ? bin : 0), image = u.image * r.channels * r.cells();
  if (r.channels_last) return {images + image + channel, r.parts(), r.channels};
  return {images + image + channel * r.cells(), r.parts() * r.cells(), 1};
}

// A cell is a bin here.
template <class S> inline Lattice<S> region_block(const Regions& r, S* regions, const RegionUnit& u, int64_t region) {
  int64_t begin = region * r.pooled() * r.bins();
  if (r.channels_last) return {regions + begin + u.channel, 1, r.pooled()};
  return {regions + begin + u.channel * r.bins(), r.bins(), 1};
}

// kBlock sums as vectors.
template <class S> struct Block {
  static constexpr int n = kBlock / lanes<S>;
  VecOf<S> v[n];
};

// Reads the first `count` channels of a cell; the others are 0.
template <class S> POOLTIDE_INLINE Block<S> read_block(const S* from, int64_t lane, int64_t count) {
  constexpr int L = lanes<S>;
  Block<S> block;
  if (lane == 1 && count == kBlock) {
    for (int i = 0; i < Block<S>::n; i++) block.v[i] = load(from + i * L);
    return block;
  }
  S padded[kBlock] = {};
  for (int64_t c = 0; c < count; c++) padded[c] = from[c * lane];
  for (int i = 0; i < Block<S>::n; i++) block.v[i] = load(padded + i * L);
  return block;
}

template <class S> POOLTIDE_INLINE void write_block(S* to, int64_t lane, int64_t count, const Block<S>& block) {
  constexpr int L = lanes<S>;
  if (lane == 1 && count == kBlock) {
    for (int i = 0; i < Block<S>::n; i++) store(to + i * L, block.v[i]);
    return;
  }
  S packed[kBlock];
  for (int i = 0; i < Block<S>::n; i++) store(packed + i * L, block.v[i]);
  for (int64_t c = 0; c < count; c++) to[c * lane] = packed[c];
}

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(Half x) { return widen_one(x); }
inline float widen(Bfloat x) { return widen_one(x); }

// Transposes lanes<S> vectors.
template <class S> POOLTIDE_INLINE void transpose(VecOf<S>* rows) {
  constexpr int L = lanes<S>;
  VecOf<S> mixed[L];
  for (int step = 1; step < L; step *= 2) {
    for (int i = 0; i < L / 2; i++) {
      mixed[2 * i] = zip<L, 0>(rows[i], rows[i + L / 2], UpTo<L>());
      mixed[2 * i + 1] = zip<L, 1>(rows[i], rows[i + L / 2], UpTo<L>());
    }
    for (int i = 0; i < L; i++) rows[i] = mixed[i];
  }
}

// Copies the channels of contiguous cells, each channel `lane` elements after the one before, to a block of sums.
template <class S> inline void stage(const S* from, int64_t lane, int64_t count, int64_t cells, typename Sum<S>::T* to) {
  constexpr int L = lanes<S>;
  int64_t whole = count == kBlock ? cells / L * L : 0;
  for (int64_t cell = 0; cell < whole; cell += L)
    for (int i = 0; i < Block<S>::n; i++) {
      VecOf<S> rows[L];
      for (int c = 0; c < L; c++) rows[c] = load(from + (i * L + c) * lane + cell);
      transpose<S>(rows);
      for (int c = 0; c < L; c++) write(to + (cell + c) * kBlock + i * L, rows[c]);
    }
  for (int64_t cell = whole; cell < cells; cell++) {
    Block<S> block = read_block(from + cell, lane, count);
    for (int i = 0; i < Block<S>::n; i++) write(to + cell * kBlock + i * L, block.v[i]);
  }
}

// The way back: writes the channels of a block of sums to contiguous cells.
template <class S> inline void unstage(const typename Sum<S>::T* from, int64_t lane, int64_t count, int64_t cells, S* to) {
  constexpr int L = lanes<S>;
  int64_t whole = count == kBlock ? cells / L * L : 0;
  for (int64_t cell = 0; cell < whole; cell += L)
    for (int i = 0; i < Block<S>::n; i++) {
      VecOf<S> rows[L];
      for (int c = 0; c < L; c++) rows[c] = read<VecOf<S>>(from + (cell + c) * kBlock + i * L);
      transpose<S>(rows);
      for (int c = 0; c < L; c++) store(to + (i * L + c) * lane + cell, rows[c]);
    }
  for (int64_t cell = whole; cell < cells; cell++) {
    Block<S> block;
    for (int i = 0; i < Block<S>::n; i++) block.v[i] = read<VecOf<S>>(from + cell * kBlock + i * L);
    write_block(to + cell, lane, count, block);
  }
}

// The samples of the region that a unit is at.
template <class T> struct SampleLists {
  Sample<T>*rows, *columns;
  int64_t *rows_at, *columns_at;

  SampleLists(const Regions& r, const RegionArrays& a, Carve& carve)
      : rows(carve.take<Sample<T>>(a.most_rows)), columns(carve.take<Sample<T>>(a.most_columns)),
        rows_at(carve.take<int64_t>(r.bins_h + 1)), columns_at(carve.take<int64_t>(r.bins_w + 1)) {}

  void fill(const Regions& r, const Box<T>& box, Span down, Span across) {
    list_samples(box.h, down, r.height, rows_at, rows);
    list_samples(box.w, across, r.width, columns_at, columns);
  }
};

}  // namespace
}  // namespace pooltide
