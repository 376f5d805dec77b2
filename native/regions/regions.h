// Pools over regions of interest, and their gradients, as the kernels read them.
//
// A region is a row of `boxes`: image, x1, y1, x2, y2. It is divided into bins_h × bins_w bins:
//
//     roi_align       out = (sum of samples) / number of samples; a sample is interpolated between four cells
//     roi_pool        out = largest cell of the bin, indices = where it is; an empty bin has 0 and -1
//     ps_roi_align    as roi_align, bin (ph, pw) of channel c reads channel (c * bins_h + ph) * bins_w + pw
//     ps_roi_pool     out = (sum of the bin's cells) / number of cells, channels as in ps_roi_align
//
// A cell of a gradient is a sum over regions, ascending, then bins, then samples, then the corners of a sample.
// docs/regions.md has the arithmetic. src/pooltide/kernels/regions/reference.py computes the same in plain loops.

#pragma once

#include "../problem.h"

namespace pooltide {

struct Regions {
  bool sampled, position_sensitive, gradient;  // the kind: sampled are the two aligns
  Store store;
  bool channels_last;
  int index_bytes;                             // of roi_pool: 4, 8, or 0 for values alone
  int64_t batch, channels, height, width;      // of the input; `channels` of the pooled side: pooled()
  int64_t regions, bins_h, bins_w;
  double scale;
  int64_t ratio;                               // samples of a bin on each axis; not positive: adaptive
  bool aligned;

  bool maxima() const { return !sampled && !position_sensitive; }
  int64_t bins() const { return bins_h * bins_w; }
  int64_t cells() const { return height * width; }
  int64_t parts() const { return position_sensitive ? bins() : 1; }  // input channels to a channel of the pooled side
  int64_t pooled() const { return channels / parts(); }
  int64_t itemsize() const { return store == Store::f64 ? 8 : store == Store::f32 ? 4 : 2; }
  int64_t pooled_elements() const { return regions * pooled() * bins(); }
  int64_t image_elements() const { return batch * channels * cells(); }
  bool empty() const { return (gradient ? image_elements() : pooled_elements()) == 0; }  // no result has an element
};

// A box on one axis: positions begin at `start`, a bin is `bin` long. A sampled bin has `grid` samples.
// A bin of cells begins at the integer `origin`; a box with a NaN is `empty`.
template <class T> struct Extent {
  T start, bin;
  int64_t grid, origin;
  bool empty;
};

template <class T> struct Box {
  Extent<T> h, w;
  T count;                       // by which a sum of samples is divided
  int64_t row_begin, row_end;    // rows of the plane that the region can touch
};

// The arrays of one call, and what was derived from its boxes.
struct RegionArrays {
  const void* source;            // grad_output or the input
  void* indices;
  void* out;
  const void* boxes;             // Box<T>[regions]
  const int64_t* order;          // regions by image, ascending
  const int64_t* first;          // batch + 1: where the regions of an image begin in `order`
  int64_t most_rows, most_columns;  // samples inside the plane on an axis, of one region
};

// One unit of work: of a gradient, rows of the planes of some channels of an image; of a forward, some channels of
// some regions. Channels are those of the pooled side; `bin` is -1, or the one bin of a position-sensitive gradient.
struct RegionUnit {
  int64_t image, channel, channels, bin;
  int64_t row_begin, row_end;    // of a gradient
  int64_t begin, end;            // of a forward: in `order`
  bool staged;                   // of a forward: the image's channels are copied to the scratch buffer first
};

struct RegionKernel {
  int64_t lanes;                 // channels that are computed at once
  int64_t (*scratch)(const Regions&, const RegionArrays&, int64_t rows, bool staged);  // bytes
  void (*run)(const Regions&, const RegionArrays&, const RegionUnit&, void* scratch, Fault&);
};

// Return the kernel of an instruction set.
RegionKernel regions_baseline(Store), regions_avx2(Store), regions_avx512(Store);

// Computes. The fault has a bad image (position = region), or a bad index (position = regions + its place in
// (K, C, PH, PW)); with a bad image nothing is written. Throws std::bad_alloc.
class Interruption;
Fault run_regions(const Regions& facts, const void* source, const void* boxes, void* indices, void* out, int threads,
                  Interruption* interruption = nullptr);

}  // namespace pooltide
