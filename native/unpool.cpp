// Max unpooling: copies elements to the cells that indices name, or for the gradient from these cells.
//
// Input: an Unpool (unpool.h). Output: every element of Unpool::out, and a Fault with the indices outside the plane.
// Threads share the blocks: a contiguous plane, or neighbouring channels of an image, so that whole cache lines are
// used. One thread copies a block, in ascending order of windows, so the last of equal indices wins.

#include "unpool.h"

#include <algorithm>
#include <cstring>

#include "threads/run_units.h"

namespace pooltide {
namespace {

constexpr int64_t kThreadBytes = 1 << 18;  // fewer bytes are not worth another thread

constexpr int64_t kLineBytes = 64;

// Some channels of an image: channels first to first + count. Window or cell i of channel c is at i * channels + c.
struct Block {
  int64_t image, first, count, channels;
};

template <class Element, class Index> void run_block(const Unpool& u, Block b, Fault& fault) {
  int64_t windows_at = b.image * b.channels * u.windows + b.first, cells_at = b.image * b.channels * u.cells + b.first;
  const Index* indices = static_cast<const Index*>(u.indices) + windows_at;
  const Element* source = static_cast<const Element*>(u.source) + (u.gather ? cells_at : windows_at);
  Element* out = static_cast<Element*>(u.out) + (u.gather ? windows_at : cells_at);
  if (!u.gather && b.count == b.channels) std::memset(out, 0, u.cells * b.channels * sizeof(Element));
  else if (!u.gather)
    for (int64_t i = 0; i < u.cells; i++) std::memset(out + i * b.channels, 0, b.count * sizeof(Element));
  for (int64_t i = 0; i < u.windows; i++) {
    for (int64_t c = 0; c < b.count; c++) {
      int64_t window = i * b.channels + c, index = indices[window];
      bool inside = static_cast<uint64_t>(index) < static_cast<uint64_t>(u.cells);
      if (!inside) fault.add((b.image * b.channels + b.first + c) * u.windows + i, index);
      if (u.gather) out[window] = inside ? source[index * b.channels + c] : Element(0);
      else if (inside) out[index * b.channels + c] = source[window];
    }
  }
}

template <class Element, class Index> void run(const Unpool& u, Block block, Fault& fault) {
  if (u.channels == 1) run_block<Element, Index>(u, {block.image, 0, 1, 1}, fault);  // the compiler drops a loop
  else run_block<Element, Index>(u, block, fault);
}

using Run = void (*)(const Unpool&, Block, Fault&);

template <class Element> Run with_index(int bytes) {
  return bytes == 4 ? run<Element, int32_t> : run<Element, int64_t>;
}

Run runner(const Unpool& u) {
  switch (u.itemsize) {
    case 1: return with_index<uint8_t>(u.index_bytes);
    case 2: return with_index<uint16_t>(u.index_bytes);
    case 4: return with_index<uint32_t>(u.index_bytes);
    default: return with_index<uint64_t>(u.index_bytes);
  }
}

}  // namespace

bool takes_long(const Unpool& u) { return static_cast<double>(u.planes) * (u.cells + u.windows) > kLongWork; }

Fault run_unpool(const Unpool& u, int threads, Interruption* interruption) {
  if (u.planes == 0) return Fault();
  int64_t plane_bytes = (u.cells + u.windows) * u.itemsize + u.windows * u.index_bytes;
  int64_t useful = std::min(u.planes, plane_bytes * u.planes / kThreadBytes + 1);
  int limited = static_cast<int>(std::clamp<int64_t>(useful, 1, std::max(std::abs(threads), 1)));
  int64_t images = u.planes / u.channels, width = u.channels, blocks = 1;
  int64_t most = std::max<int64_t>(1, static_cast<int64_t>(kLongWork) / (u.cells + u.windows + 1));  // planes of a chunk
  auto too_few = [&] { return width > most || (limited > 1 && images * blocks < limited * 4); };
  while (too_few() && width * u.itemsize > kLineBytes) {
    width = (width + 1) / 2;
    blocks = (u.channels + width - 1) / width;
  }
  int64_t units = images * blocks, chunk = std::min(most / width, units / (limited * 8));
  Run run = runner(u);
  return run_units(threads < 0 ? -limited : limited, units, std::max<int64_t>(1, chunk), interruption, [&](int) {
    return [&](int64_t begin, int64_t end, Fault& fault) {
      for (int64_t unit = begin; unit < end; unit++) {
        int64_t first = unit % blocks * width;
        run(u, {unit / blocks, first, std::min(width, u.channels - first), u.channels}, fault);
      }
    };
  });
}

}  // namespace pooltide
