// Derives from the boxes of a call what kernels read, cuts the call into units, and runs them.
//
// This is compiled without contraction, as the kernels are: positions decide here how much scratch a kernel needs.

#include "regions.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "../prepared.h"
#include "../threads/run_units.h"
#include "boxes.h"

namespace pooltide {
namespace {

constexpr int64_t kThreadWork = 1 << 17;  // less work, in elements that are read or added to, is not worth a thread
constexpr int64_t kBandBytes = 256 << 10; // of sums: they should stay in a processor's cache

// Boxes, sorted by image, and what they make of the plane.
struct Derived {
  std::vector<char> boxes;
  std::vector<int64_t> order, first;
  int64_t most_rows = 0, most_columns = 0;
  double reads = 0;  // cells that the bins of all regions have, with repetition
  Fault fault;
};

template <class T> void derive(const Regions& r, const T* rows, Derived& to) {
  to.first.assign(r.batch + 1, 0);
  for (int64_t k = 0; k < r.regions; k++) {
    T image = rows[5 * k];
    if (image >= T(0) && image < T(r.batch) && image == flooring(image)) to.first[int64_t(image) + 1]++;
    else to.fault.add(k, 0);
  }
  if (to.fault.count || r.empty()) return;
  for (int64_t image = 0; image < r.batch; image++) to.first[image + 1] += to.first[image];
  std::vector<int64_t> next(to.first.begin(), to.first.end());
  to.order.resize(r.regions);
  to.boxes.resize(r.regions * sizeof(Box<T>));
  auto* boxes = reinterpret_cast<Box<T>*>(to.boxes.data());
  for (int64_t k = 0; k < r.regions; k++) {
    const T* row = rows + 5 * k;
    to.order[next[int64_t(row[0])]++] = k;
    Box<T>& box = boxes[k];
    int64_t down = 0, across = 0, begin = r.height, end = 0;
    if (!r.sampled) {
      box.h = cell_extent(r, row[2], row[4], r.bins_h), box.w = cell_extent(r, row[1], row[3], r.bins_w);
      if (box.h.empty || box.w.empty) box.h.empty = box.w.empty = true;
      Span top = cells_of_bin(box.h, 0, r.height), bottom = cells_of_bin(box.h, r.bins_h - 1, r.height);
      Span left = cells_of_bin(box.w, 0, r.width), right = cells_of_bin(box.w, r.bins_w - 1, r.width);
      begin = top.begin, end = bottom.end, down = end - begin, across = right.end - left.begin;
      if (r.maxima() && r.gradient) begin = 0, end = r.height, down = r.bins_h, across = r.bins_w;
    } else {
      box.h = sampled_extent(r, row[2], row[4], r.bins_h), box.w = sampled_extent(r, row[1], row[3], r.bins_w);
      for (int64_t bin = 0; bin < r.bins_h; bin++) {
        Span inside = samples_inside(box.h, bin, r.height);
        if (inside.begin >= inside.end) continue;
        down += inside.end - inside.begin;
        auto one = sample_at(position_of(box.h, bin, inside.begin), r.height);
        auto other = sample_at(position_of(box.h, bin, inside.end - 1), r.height);
        begin = std::min<int64_t>(begin, std::min(one.low, other.low)), end = std::max<int64_t>(end, std::max(one.high, other.high) + 1);
      }
      for (int64_t bin = 0; bin < r.bins_w; bin++) {
        Span inside = samples_inside(box.w, bin, r.width);
        across += std::max<int64_t>(inside.end - inside.begin, 0);
      }
      if (across == 0) end = begin = 0;
      int64_t samples = box.h.grid * box.w.grid;
      box.count = T(r.position_sensitive ? samples : std::max<int64_t>(samples, 1));
      to.most_rows = std::max(to.most_rows, down), to.most_columns = std::max(to.most_columns, across);
    }
    box.row_begin = std::min(begin, end), box.row_end = end;
    to.reads += static_cast<double>(down) * across * (r.sampled ? 4 : 1);
  }
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Cuts n into `parts` runs, and calls use(begin, end) for each.
template <class F> void cut(int64_t n, int64_t parts, F use) {
  parts = std::clamp<int64_t>(parts, 1, std::max<int64_t>(n, 1));
  for (int64_t i = 0; i < parts; i++) use(n * i / parts, n * (i + 1) / parts);
}

std::vector<RegionUnit> units_of(const Regions& r, const Derived& d, int64_t lanes, int64_t threads) {
  std::vector<RegionUnit> units;
  int64_t blocks = (r.pooled() + lanes - 1) / lanes, wanted = threads * 8;
  int64_t sum_bytes = r.store == Store::f64 ? 8 : 4;
  for (int64_t image = 0; image < r.batch; image++) {
    int64_t first = d.first[image], regions = d.first[image + 1] - first;
    if (!r.gradient && regions == 0) continue;
    for (int64_t block = 0; block < blocks; block++) {
      RegionUnit unit = {};
      unit.image = image, unit.channel = block * lanes, unit.channels = std::min(lanes, r.pooled() - unit.channel), unit.bin = -1;
      if (r.gradient) {
        int64_t parts = r.parts(), bands = (r.height * r.width * lanes * sum_bytes + kBandBytes - 1) / kBandBytes;
        if (r.maxima()) bands = (bands + 15) / 16;  // a band reads all gradients of its regions
        if (threads > 1) bands = std::max(bands, wanted / (r.batch * blocks * parts * (r.maxima() ? 4 : 1)));
        for (int64_t bin = 0; bin < parts; bin++)
          cut(r.height, bands, [&](int64_t begin, int64_t end) {
            unit.bin = r.position_sensitive ? bin : -1, unit.row_begin = begin, unit.row_end = end;
            units.push_back(unit);
          });
        continue;
      }
      // A copy costs about as much as reading each cell twice.
      unit.staged = !r.position_sensitive && !r.channels_last && d.reads * regions / r.regions > 2.0 * r.cells();
      cut(regions, unit.staged ? 1 : std::max<int64_t>(1, wanted / (r.batch * blocks)), [&](int64_t begin, int64_t end) {
        unit.begin = first + begin, unit.end = first + end;
        units.push_back(unit);
      });
    }
  }
  return units;
}

}  // namespace

Fault run_regions(const Regions& r, const void* source, const void* boxes, void* indices, void* out, int threads, Interruption* interruption) {
  Derived derived;
  if (r.store == Store::f64) derive(r, static_cast<const double*>(boxes), derived);
  else derive(r, static_cast<const float*>(boxes), derived);
  if (derived.fault.count || r.empty()) return derived.fault;
  RegionKernel kernel = current_set().regions(r.store);
  double work_done = derived.reads * r.pooled() * 2 + (r.gradient ? r.image_elements() : r.pooled_elements());
  int64_t useful = static_cast<int64_t>(std::min(work_done / kThreadWork, 4096.0)) + 1;
  useful = std::clamp<int64_t>(useful, 1, std::max(std::abs(threads), 1));
  std::vector<RegionUnit> units = units_of(r, derived, kernel.lanes, useful);
  RegionArrays arrays = {source, indices, out, derived.boxes.data(), derived.order.data(), derived.first.data(), derived.most_rows, derived.most_columns};
  int64_t rows = 0;
  bool staged = false;
  for (const RegionUnit& unit : units) rows = std::max(rows, unit.row_end - unit.row_begin), staged |= unit.staged;
  useful = std::min<int64_t>(useful, std::max<size_t>(units.size(), 1));
  int64_t each = round_up(kernel.scratch(r, arrays, rows, staged), 64);
  std::unique_ptr<char, Free> scratch(static_cast<char*>(std::aligned_alloc(64, std::max<int64_t>(each * useful, 64))));
  if (!scratch) throw std::bad_alloc();
  return run_units(threads < 0 ? -useful : useful, static_cast<int64_t>(units.size()), 1, interruption, [&](int worker) {
    return [&, memory = scratch.get() + worker * each](int64_t begin, int64_t end, Fault& fault) {
      for (int64_t i = begin; i < end; i++) kernel.run(r, arrays, units[i], memory, fault);
    };
  });
}

}  // namespace pooltide
