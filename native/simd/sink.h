// Where a kernel puts its part of the result: cells in ascending order, each written once.
//
// A kernel asks for room, may write two vectors too much, and commits what counts. Small results are
// written in place: what was written too much lies in the same part and is overwritten later. Results
// beyond the cache are staged in a few kilobytes and leave in whole lines by non-temporal stores.

#pragma once

#include "lanes.h"

namespace pooltide {
namespace {

// Copies n elements and up to a vector more, upwards.
template <class S> inline void copy_vectors(S* to, const S* from, int64_t n) {
  for (int64_t i = 0; i < n; i += lanes<S>) write(to + i, read<PackedOf<S>>(from + i));
}

template <class S> class Sink {
 public:
  static constexpr int64_t kLine = 64 / sizeof(S), kSlack = 2 * lanes<S>;

  // Elements of staging for pieces of up to `piece`.
  static int64_t staging(int64_t piece, int64_t bytes = 16384) {
    int64_t least = piece + kSlack + 2 * kLine, usual = bytes / (int64_t)sizeof(S);
    return least > usual ? least : usual;
  }

  Sink(S* begin, S* end, S* stage, int64_t capacity, bool stream)
      : at_(begin), end_(end), stage_(stage), capacity_(capacity), stream_(stream) {}

  S* room(int64_t n, int64_t slack = kSlack) {
    if (!stream_) return end_ - at_ >= n + slack ? at_ : stage_;
    if (fill_ + n + kSlack > capacity_) flush();
    return stage_ + fill_;
  }

  void commit(const S* piece, int64_t n) {
    if (stream_) {
      fill_ += n;
      return;
    }
    if (piece != at_) memcpy(at_, piece, n * sizeof(S));
    at_ += n;
  }

  void finish() {
    if (!stream_) return;
    flush();
    memcpy(at_, stage_, fill_ * sizeof(S));
    stream_fence();
  }

 private:
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
