// Writes a kernel's part of the result: elements in ascending order, each committed once.
//
// A kernel reserves n elements, writes them and up to two vectors more, and commits the n elements.
// Without `stream` it writes into the result itself, and the next elements overwrite the surplus. Near the
// end of the part, where the surplus does not fit, it writes into the stage, and `commit` copies.
// With `stream`, for results larger than the cache, all elements pass through the stage, a buffer of a few
// kilobytes, and leave it as whole cache lines by non-temporal stores.

#pragma once

#include "lanes.h"

namespace pooltide {
namespace {

// Copies n elements, rounded up to whole vectors.
template <class S> inline void copy_vectors(S* to, const S* from, int64_t n) {
  for (int64_t i = 0; i < n; i += lanes<S>) write(to + i, read<PackedOf<S>>(from + i));
}

template <class S> class Sink {
 public:
  static constexpr int64_t kLine = 64 / sizeof(S), kSlack = 2 * lanes<S>;
  static constexpr int64_t kSpare = kSlack + 2 * kLine;  // a stage's elements beyond a reservation

  // Returns the size of a stage for reservations of up to `most` elements; `bytes` is the usual size.
  static constexpr int64_t stage_size(int64_t most, int64_t bytes = 16384) {
    int64_t least = most + kSpare, usual = bytes / (int64_t)sizeof(S);
    return least > usual ? least : usual;
  }

  // Returns the most elements that may be reserved at a time.
  static int64_t most(int64_t stage_size) { return stage_size - kSpare; }

  Sink(S* begin, S* end, S* stage, int64_t capacity, bool stream)
      : at_(begin), end_(end), stage_(stage), capacity_(capacity), stream_(stream) {}

  // Returns where to write n elements and up to `slack` more.
  S* reserve(int64_t n, int64_t slack = kSlack) {
    if (!stream_) return end_ - at_ >= n + slack ? at_ : stage_;
    if (fill_ + n + kSlack > capacity_) flush();
    return stage_ + fill_;
  }

  // `from` is the address that `reserve` returned.
  void commit(const S* from, int64_t n) {
    if (stream_) {
      fill_ += n;
      return;
    }
    if (from != at_) memcpy(at_, from, n * sizeof(S));
    at_ += n;
  }

  void finish() {
    if (!stream_) return;
    flush();
    memcpy(at_, stage_, fill_ * sizeof(S));
    stream_fence();
  }

 private:
  // Moves the whole cache lines of the stage to the result.
  void flush() {
    int64_t head = (-(uintptr_t)at_ % 64) / sizeof(S);
    if (head >= fill_) return;
    memcpy(at_, stage_, head * sizeof(S));
    int64_t lines = (fill_ - head) / kLine * kLine;
    stream_lines((char*)(at_ + head), (const char*)(stage_ + head), lines * sizeof(S));
    int64_t done = head + lines;
    memmove(stage_, stage_ + done, (fill_ - done) * sizeof(S));
    at_ += done;
    fill_ -= done;
  }

  S *at_, *end_, *stage_;
  int64_t capacity_, fill_ = 0;
  bool stream_;
};

}  // namespace
}  // namespace pooltide
