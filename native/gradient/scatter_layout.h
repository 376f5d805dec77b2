// Divides the scatter of a max-pooling gradient into parts that fit the cache.
//
// Input: a Problem and a Method. Output: the sizes of the parts, or from `refuse` the reason why there are none.
//
//     image     a plane, or in channels-last order all channels of a batch element
//     slice     the cells of an image at one position of the slow axis, for example one row of a 2-D plane;
//               the slow axis is the first axis with more than one cell or window
//     piece     consecutive windows that are added together, usually up to 1024 or 4096 elements of grad_output
//     band      the slices that the windows of a piece hold; bands ascend from piece to piece
//     group     several small images that form one piece; the band of this piece is all cells of the images
//     segment   consecutive slices of an image; if there are few images, threads share the segments of an image
//     block     channels that are added together: all channels, or fewer if the ring would outgrow the cache
//
// The methods differ in the place of the sums:
//
//     in_place   sums are in the result; slices are set to zero just before the first window that holds them
//     compared   for half types: a window writes its sum, which scatter_compared.h computes, into the result
//     bands      for half types: sums are in a float32 ring of slices in the scratch buffer; slices that no later
//                window holds are rounded and written

#pragma once

#include "../problem.h"
#include "../simd/scratch.h"

namespace pooltide {
namespace {

enum class Method { in_place, compared, bands };

// Returns the axis that is cut into slices.
inline const Axis& slow_axis(const Problem& p) {
  if (p.d.cells > 1 || p.d.windows > 1) return p.d;
  return p.h.cells > 1 || p.h.windows > 1 ? p.h : p.w;
}

// Returns the first cell after a window.
inline int64_t end_of(const Axis& axis, int64_t o) { return axis.start[o] + (axis.length[o] - 1) * axis.dilation + 1; }

// Returns why the windows of an axis are not ranges of cells that ascend, or null.
inline const char* refuse_axis(const Axis& axis) {
  if (!axis.start) return "the row is too long for a table per window";
  for (int64_t o = 0; o < axis.windows; o++) {
    if (axis.length[o] == 0) return "a window has no cell";
    if (o && (axis.start[o] < axis.start[o - 1] || end_of(axis, o) < end_of(axis, o - 1))) return "windows do not ascend";
  }
  return nullptr;
}

struct ScatterLayout {
  static constexpr int64_t kPiece = 1024, kPieceInPlace = 4096, kTightPiece = 24;  // elements
  static constexpr int64_t kGroupElements = 32768, kRingElements = 4096;  // of the result
  static constexpr int64_t kRingBytes = 256 << 10, kLeastBlock = 16;
  static constexpr int64_t kUnits = 64;                      // enough for many threads

  const Axis& axis;
  int64_t images, channels, slices, slice;  // a slice has `slice` cells
  int64_t row;                              // windows that have the same place on the slow axis
  int64_t block, blocks;                    // channels that are added together
  int64_t segments;                         // of an image
  int64_t piece;                            // windows of a piece
  int64_t group = 0;                        // images of a piece, or 0: an image has several pieces
  int64_t ring = 0;                         // elements of the ring, a power of two

  ScatterLayout(const Problem& p, Method method, bool tight) : axis(slow_axis(p)) {
    images = images_of(p), channels = p.channels_last ? p.channels : 1;
    slices = axis.cells, slice = p.cells() / slices, row = p.windows() / larger(axis.windows, 1);
    block = block_of(p, method), blocks = (channels + block - 1) / block, segments = segments_of(p, method, blocks);
    int64_t elements = tight ? kTightPiece : method == Method::in_place ? kPieceInPlace : kPiece, each = larger(p.windows() * channels, 1);
    piece = larger(1, elements / block);
    int64_t most = method == Method::bands ? kRingElements : kGroupElements;
    if (2 * each <= elements && blocks == 1 && segments == 1) {
      group = larger(1, smaller(images, smaller(elements / each, most / (p.cells() * channels))));
      piece = group * p.windows();
    }
    if (method == Method::bands) ring = power_of_two_from(group ? group * p.cells() * channels : widest() * slice * block);
  }

  // Returns why this layout is impossible, or null. The layout needs windows that are not empty and that ascend along
  // the slow axis, and images of fewer than 2**30 elements, because positions have 32 bits.
  static const char* refuse(const Problem& p) {
    if (const char* reason = refuse_axis(slow_axis(p))) return reason;
    return p.cells() * (p.channels_last ? p.channels : 1) < 1 << 30 ? nullptr : "an image has 2**30 elements or more";
  }

  // Returns whether the ring of all channels is too large, so that channels are taken in blocks.
  static bool outgrows_cache(const Problem& p, Method method) {
    return method == Method::bands && p.channels_last && p.channels > kLeastBlock && band_bytes(p) * p.channels > 2 * kRingBytes;
  }

  static int64_t units(const Problem& p, Method method) {
    int64_t block = block_of(p, method), blocks = p.channels_last ? (p.channels + block - 1) / block : 1;
    return images_of(p) * blocks * segments_of(p, method, blocks);
  }

 private:
  static int64_t images_of(const Problem& p) { return p.channels_last ? p.batch : p.planes(); }

  static int64_t power_of_two_from(int64_t n) {
    int64_t size = 64;
    while (size < n) size *= 2;
    return size;
  }

  // Returns the largest number of slices that a window holds.
  static int64_t longest(const Axis& axis) { return (axis.longest - 1) * axis.dilation + 1; }

  // Returns the bytes of the sums that a window may name in one channel.
  static int64_t band_bytes(const Problem& p) {
    const Axis& axis = slow_axis(p);
    return longest(axis) * (p.cells() / larger(axis.cells, 1)) * (int64_t)sizeof(float);
  }

  // Returns all channels, or a power of two of them if the ring of all channels outgrows the cache.
  static int64_t block_of(const Problem& p, Method method) {
    int64_t channels = p.channels_last ? p.channels : 1, band = band_bytes(p);
    if (!outgrows_cache(p, method)) return channels;
    int64_t block = kLeastBlock;
    while (2 * block < channels && band * 2 * block <= kRingBytes) block *= 2;
    return block;
  }

  // Returns the number of segments of an image. Two neighbouring segments both read the windows that cross their
  // border, so several segments are only used if each has at least twice as many slices as the longest window.
  static int64_t segments_of(const Problem& p, Method method, int64_t blocks) {
    const Axis& axis = slow_axis(p);
    int64_t units = method == Method::compared ? kUnits / 4 : kUnits;
    return larger(1, smaller(units / (images_of(p) * blocks), axis.cells / larger(2 * longest(axis), 1)));
  }

  // Returns the largest number of slices that the windows of a piece hold.
  int64_t widest() const {
    int64_t positions = (piece + row - 2) / row, most = 0;
    for (int64_t o = 0; o < axis.windows; o++)
      most = larger(most, end_of(axis, smaller(o + positions, axis.windows - 1)) - axis.start[o]);
    return most;
  }
};

}  // namespace
}  // namespace pooltide
