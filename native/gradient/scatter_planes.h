// Gradients of maxima, plane by plane: set a plane to zero, then add each gradient to the cell that its index
// names, in ascending order of windows.
//
//     plane[indices[q]] += grad[q]
//
// A one-byte index is an offset inside the window q: its cell is the window's first cell + jump[offset].
//
// float32 and float64 are summed in the result itself (`in_place`). Half types are summed in a float32 plane in
// the scratch buffer, which is all zero between planes. Three methods convert this plane to the result:
//
//     disjoint   no two windows share a cell, so gradients are copied and nothing is summed
//     sparse     there are few windows: the result is set to zero, and only the named cells are converted
//     blocks     windows are added in blocks; after each, the cells that no later index names are converted
//
// Each index is compared with the size of the plane, in 64 bits, before it is used. An index outside the plane
// is skipped and reported.

#pragma once

#include "../simd/scratch.h"
#include "../simd/sink.h"
#include "indices.h"

namespace pooltide {
namespace {

// Facts about a block of kBlock windows: `least` is the least cell that its indices or those of a later block
// name; `inside` says that all its indices are inside the plane.
struct Block {
  int64_t least;
  bool inside;
};

enum class Scatter { in_place, disjoint, sparse, blocks };

// One thread's work, with indices of type I. A unit is a plane.
template <class S, class I> class ScatterPlanes {
  using T = typename Sum<S>::T;
  using CellIndex = typename Decoded<I>::Type;
  static constexpr int64_t L = lanes<S>, kTwoVectors = 2 * L, kBlock = 512;
  static constexpr bool kHalf = sizeof(S) < sizeof(T);

 public:
  ScatterPlanes(const Problem& p, const Arrays& arrays, Scatter method, void* scratch)
      : p_(p), arrays_(arrays), carve_(scratch), method_(method) {
    int64_t buffered = whole_planes() ? larger(p.windows(), kBlock) : kBlock;
    sums_ = carve_.take<T>(kHalf ? p.cells() + 2 * L : 0);
    converted_ = carve_.take<T>(buffered + L);
    packed_ = carve_.take<S>(method == Scatter::sparse ? buffered + L : 0);
    decoded_ = carve_.take<CellIndex>(p.index_bytes == 1 && whole_planes() ? buffered : 0);
    blocks_ = carve_.take<Block>(p.windows() / kBlock + 2);
    stage_ = carve_.take<S>(stage_size());
  }

  int64_t scratch() const { return carve_.used(); }

  void begin() {
    if (kHalf) memset((void*)sums_, 0, (p_.cells() + 2 * L) * sizeof(T));
  }

  void run(int64_t begin, int64_t end, Fault& fault) {
    int64_t cells = p_.cells();
    S* out = (S*)arrays_.out;
    if (!kHalf) {
      for (int64_t plane = begin; plane < end; plane++) scatter_in_place(plane, (T*)(void*)(out + plane * cells), fault);
      return;
    }
    Sink<S> sink(out + begin * cells, out + end * cells, stage_, stage_size(), arrays_.stream);
    for (int64_t plane = begin; plane < end; plane++) {
      if (method_ == Scatter::disjoint && copy_disjoint(plane, sink)) continue;
      check_plane(plane);
      if (method_ != Scatter::sparse || !scatter_sparse(plane, sink)) scatter_blocks(plane, sink, fault);
    }
    sink.finish();
  }

 private:
  bool whole_planes() const { return method_ == Scatter::disjoint || method_ == Scatter::sparse; }
  int64_t stage_size() const {
    return Sink<S>::stage_size(whole_planes() ? larger(p_.cells(), kBlock) : kBlock, arrays_.tight ? 0 : 16384);
  }

  void scatter_in_place(int64_t plane, T* sums, Fault& fault) {
    memset((void*)sums, 0, p_.cells() * sizeof(T));
    for (int64_t k = 0; k * kBlock < p_.windows(); k++) scatter_block(plane, k, sums, fault);
  }

  void scatter_blocks(int64_t plane, Sink<S>& sink, Fault& fault) {
    int64_t written = 0;
    for (int64_t from = 0, k = 0; from < p_.windows(); from += kBlock) {
      scatter_block(plane, k, sums_, fault);
      write_cells(written, blocks_[++k].least / kTwoVectors * kTwoVectors, sink);
    }
    write_cells(written, p_.cells(), sink);
  }

  // Copies gradients to the cells that they name; -0 becomes +0, as in 0 + -0. Returns false, with nothing
  // committed, if an index is outside the plane or if two indices name one cell.
  bool copy_disjoint(int64_t plane, Sink<S>& sink) {
    if constexpr (kHalf) {
      int64_t cells = p_.cells(), n = p_.windows();
      const S* g = (const S*)arrays_.grad + plane * n;
      const CellIndex* at = decode(plane);
      S* to = sink.reserve(cells, 0);
      memset((void*)to, 0, cells * sizeof(S));
      uint16_t taken = 0;
      for (int64_t i = 0; i < n; i++) {
        if ((uint64_t)(int64_t)at[i] >= (uint64_t)cells) return false;
        taken |= to[at[i]].bits;
        to[at[i]].bits = g[i].bits == 0x8000 ? 0 : g[i].bits;
      }
      if (taken == 0) sink.commit(to, cells);
      return taken == 0;
    }
    return false;
  }

  // Sums in the scratch plane, then converts the named cells and sets them to zero again. Returns false, with
  // nothing committed, if an index is outside the plane.
  bool scatter_sparse(int64_t plane, Sink<S>& sink) {
    int64_t cells = p_.cells(), n = p_.windows();
    const CellIndex* at = decode(plane);
    for (int64_t k = 0; k * kBlock < n; k++)
      if (!inside(k, at + k * kBlock, smaller(kBlock, n - k * kBlock))) return false;
    add(widen((const S*)arrays_.grad + plane * n, n), at, n, sums_);
    for (int64_t i = 0; i < n; i++) converted_[i] = sums_[at[i]];
    for (int64_t i = 0; i < n; i += L) store(packed_ + i, load(converted_ + i));
    S* to = sink.reserve(cells, 0);
    memset((void*)to, 0, cells * sizeof(S));
    for (int64_t i = 0; i < n; i++) to[at[i]] = packed_[i], sums_[at[i]] = 0;
    sink.commit(to, cells);
    return true;
  }

  // Fills blocks_, and prefetches the indices of the next plane.
  void check_plane(int64_t plane) {
    int64_t windows = p_.windows(), blocks = 0;
    for (int64_t from = 0; from < windows; from += kBlock, blocks++) {
      Block& block = blocks_[blocks];
      int64_t n = smaller(kBlock, windows - from);
      if constexpr (sizeof(I) == 1) {
        block = {least_cell(from, n), false};  // the offsets are checked when they are added
      } else {
        block = check_indices((const I*)arrays_.indices + plane * windows + from, n, windows);
      }
    }
    blocks_[blocks] = {p_.cells(), true};
    for (int64_t k = blocks; k-- > 0;) blocks_[k].least = smaller(blocks_[k].least, blocks_[k + 1].least);
  }

  // Returns the least cell of n windows. Rows of windows need not ascend: dilation may step over the padding.
  int64_t least_cell(int64_t from, int64_t n) const {
    int64_t row = from / p_.w.windows, last = (from + n - 1) / p_.w.windows, least = row_start(p_, row);
    while (row < last) least = smaller(least, row_start(p_, ++row));
    return least;
  }

  // Checks n indices without a branch: i is outside 0 … last if the sign bit of i or of last - i is set.
  // Prefetches the indices `ahead` of them.
  Block check_indices(const CellIndex* at, int64_t n, int64_t ahead) const {
    using U = typename Unsigned<CellIndex>::Type;
    typedef CellIndex IndexVector __attribute__((vector_size(kVectorBytes)));
    typedef U UnsignedVector __attribute__((vector_size(kVectorBytes)));
    constexpr int64_t each = kVectorBytes / sizeof(CellIndex);
    constexpr U sign = U{1} << (8 * sizeof(U) - 1);
    const U last = (U)smaller(p_.cells() - 1, (int64_t)(sign - 1));
    CellIndex least = at[0];
    U signs = 0;
    int64_t i = 0;
    if (n >= each && (kVectorBytes > 16 || sizeof(CellIndex) == 4)) {  // SSE2 can't compare 64 bits
      IndexVector low = read<IndexVector>(at);
      UnsignedVector bad{};
      for (; i + each <= n; i += each) {
        __builtin_prefetch(at + i + ahead);
        IndexVector v = read<IndexVector>(at + i);
        low = v < low ? v : low;
        bad |= (UnsignedVector)v | (last - (UnsignedVector)v);
      }
      for (int64_t k = 0; k < each; k++) least = low[k] < least ? low[k] : least, signs |= bad[k];
    }
    for (; i < n; i++) least = at[i] < least ? at[i] : least, signs |= (U)at[i] | (last - (U)at[i]);
    return {least, !(signs & sign)};
  }

  static void add(const T* g, const CellIndex* at, int64_t n, T* sums) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; i++) sums[at[i]] += g[i];
  }

  bool inside(int64_t block, const CellIndex* at, int64_t n) const {
    if (!kHalf) return false;  // a branch for each index costs less than reading them twice
    return sizeof(I) == 1 ? check_indices(at, n, 0).inside : blocks_[block].inside;
  }

  // Adds the gradients of one block of windows. Indices outside the plane are skipped and reported.
  void scatter_block(int64_t plane, int64_t block, T* sums, Fault& fault) {
    int64_t from = block * kBlock, windows = p_.windows();
    int64_t n = smaller(kBlock, windows - from), first = plane * windows + from;
    const T* g = widen((const S*)arrays_.grad + first, n);
    if constexpr (sizeof(I) == 1) {
      scatter_offsets(first, from, n, g, sums, fault);
    } else {
      const I* at = (const I*)arrays_.indices + first;
      if (inside(block, at, n)) return add(g, at, n, sums);
      const uint64_t cells = p_.cells();
      for (int64_t i = 0; i < n; i++) {
        if (__builtin_expect((uint64_t)(int64_t)at[i] < cells, 1)) {
          sums[at[i]] += g[i];
        } else {
          fault.add(first + i, at[i]);
        }
      }
    }
  }

  // The same for one-byte offsets, a part of a row of windows at a time. `jump` ascends up to the largest offset
  // of a window, so if the cell of the largest offset is inside the plane, all cells are.
  void scatter_offsets(int64_t first, int64_t from, int64_t n, const T* g, T* sums, Fault& fault) {
    const uint8_t* offset = (const uint8_t*)arrays_.indices + first;
    const int64_t* jump = p_.jump;
    for (int64_t i = 0; i < n;) {
      int64_t row = (from + i) / p_.w.windows, ow = from + i - row * p_.w.windows, corner = row_start(p_, row);
      int64_t end = smaller(n, i + p_.w.windows - ow);
      const int32_t* start = p_.w.start + ow - i;
      uint8_t most = 0;
      int32_t farthest = 0;
      for (int64_t k = i; k < end; k++) {
        most = offset[k] > most ? offset[k] : most;
        farthest = start[k] > farthest ? start[k] : farthest;
      }
      if (jump[most] >= 0 && corner + farthest + jump[most] < p_.cells()) {
        T* cells = sums + corner;
#pragma GCC unroll 4
        for (; i < end; i++) cells[start[i] + jump[offset[i]]] += g[i];
        continue;
      }
      for (; i < end; i++) {
        int64_t at = corner + start[i] + jump[offset[i]];
        if ((uint64_t)at < (uint64_t)p_.cells()) sums[at] += g[i];
        else fault.add(first + i, at);
      }
    }
  }

  // Returns the cells that the indices of a plane name.
  const CellIndex* decode(int64_t plane) {
    const I* indices = (const I*)arrays_.indices + plane * p_.windows();
    if constexpr (sizeof(I) == 1) {
      CellIndex* to = decoded_;
      for (int64_t row = 0; row < p_.d.windows * p_.h.windows; row++)
        for (int64_t ow = 0, corner = row_start(p_, row); ow < p_.w.windows; ow++)
          *to++ = corner + p_.w.start[ow] + p_.jump[*indices++];
      return decoded_;
    } else {
      return indices;
    }
  }

  const T* widen(const S* grad, int64_t n) { return widened(grad, n, converted_, p_.windows()); }

  // Writes the cells from … end - 1 to the result, and sets them to zero in the scratch plane.
  void write_cells(int64_t& from, int64_t end, Sink<S>& sink) {
    while (from < end) {
      int64_t n = smaller(kBlock, end - from);
      S* to = sink.reserve(n);
      T* sums = sums_ + from;
      for (int64_t i = 0; i < n; i += kTwoVectors) {
        write(to + i, pack_two(S{}, load(sums + i), load(sums + i + L)));
        store(sums + i, typename Lanes<T>::V{}), store(sums + i + L, typename Lanes<T>::V{});
      }
      sink.commit(to, n);
      from += n;
    }
  }

  const Problem& p_;
  const Arrays& arrays_;
  Carve carve_;
  const Scatter method_;
  T *sums_, *converted_;
  S *packed_, *stage_;
  CellIndex* decoded_;
  Block* blocks_;
};

}  // namespace
}  // namespace pooltide
