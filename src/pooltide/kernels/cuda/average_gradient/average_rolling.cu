// The gradient of averages, by threads that walk down columns: every cell adds the quotients of the windows that
// hold it, (d, h, w) ascending.
//
// A slice of a plane is H rows of W · inner elements: inner is 1, or the channels. A thread owns VECTOR
// neighbouring elements of a row and walks down some of the rows. It keeps the quotients of the last
// ROWS rows of windows in registers, so that it loads a window once. It prefetches the gradients of the next row of
// windows while it adds. There is no shared memory and no barrier.
//
// Rows are grouped in periods:
//     STRIDE n   windows are n rows apart and have KERNEL rows. Period o has n rows and begins at the first row of
//                window o, even if there is no window o. Period p.first_period holds the first row of the plane
//     ROWWISE 1  no row is in two windows. A thread owns every `step`th row, whatever its period; so the threads of a
//                warp write rows that are neighbours
//     STRIDE 0   a period is a run of rows in the same windows, at most two: (first row, end, first window, windows)
//
// How the windows of the VECTOR elements are loaded:
//     UNION 1    elements are columns. VECTOR is a multiple of the stride STRIDE_W, so the windows of all of them
//                are neighbours, and which of them hold an element is known to the compiler
//                (TOGETHER 1: these windows are one vector in memory)
//     PACKED 1   elements are channels of one column, and are loaded together
//     neither    each element has its own windows
//
//     D_WALK 1          a thread walks through d_chunk slices; 0: through one
//     STORE             elements that are written together; less than VECTOR where rows do not begin at vectors
//     WINDOWS           the quotients of one row of windows that a thread keeps
//     COLUMNS, SLICES   the most windows that hold a cell on the w axis and on the d axis
//     UNIFORM 1         all windows have the same divisors
//     ONCE, BY_D, BY_H, BY_W   how to divide: see gradient_quotients.h
#include "gradient_quotients.h"
#include "rotation.h"

struct __align__(VECTOR * sizeof(Element)) Vector {
  Element each[VECTOR];
};
struct __align__(STORE * sizeof(Element)) Stored {
  Element each[STORE];
};

#define ROWS (STRIDE ? (KERNEL + STRIDE - 1) / (STRIDE ? STRIDE : 1) : 2)

#if ELEMENT >= 2
typedef u32 Raw;  // a loaded gradient: registers have no halves
#else
typedef Element Raw;
#endif

__device__ constexpr int floor_of(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

#if UNION
// The first and the last window that hold column j of a thread, counted from the first of its windows.
__device__ constexpr int first_of(int j) {
  return floor_of(j + PADDING_W - KERNEL_W + STRIDE_W, STRIDE_W) - floor_of(PADDING_W - KERNEL_W + STRIDE_W, STRIDE_W);
}
__device__ constexpr int last_of(int j) {
  return floor_of(j + PADDING_W, STRIDE_W) - floor_of(PADDING_W - KERNEL_W + STRIDE_W, STRIDE_W);
}
#endif

// Writes VECTOR sums, as far as they are in the row.
__device__ __forceinline__ void write(Element *to, const Sum *sums, int left) {
#pragma unroll
  for (int from = 0; from < VECTOR; from += STORE) {
    Stored made;
    narrow_all<STORE>(made.each, sums + from);
    if (STORE == VECTOR || from < left) *(Stored *)(to + from) = made;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) average_rolling(const Parameters p) {
  const int *runs = p.tables, *first_d = runs + (STRIDE ? 0 : 4 * p.periods), *count_d = first_d + p.D;
  const int *first_w = count_d + p.D, *count_w = first_w + p.W;
  const u32 thread = blockIdx.x * THREADS + threadIdx.x;
  if (thread >= (u32)p.threads) return;

  // The elements of this thread, its slice, and its periods.
  u32 at = thread, rest = over(at, p.by_vectors);
  const int x = (at - rest * p.by_vectors.n) * VECTOR;
  at = rest, rest = over(at, p.by_chunks);
#if ROWWISE
  const int from = at - rest * p.by_chunks.n, step = p.by_chunks.n;
#else
  const int from = (at - rest * p.by_chunks.n) * p.chunk, to = min(from + p.chunk, p.periods), step = 1;
#endif
  at = rest, rest = over(at, p.by_d);
  const int from_d = (at - rest * p.by_d.n) * (D_WALK ? p.d_chunk : 1), to_d = min(from_d + p.d_chunk, p.D);
  const i64 plane = rest;

  const int pitch = p.W * p.inner, left = pitch - x, row_windows = p.Wo * p.inner;
  const Element *grad = p.grad + plane * p.Do * p.Ho * row_windows;
  Element *out = p.out;
  int fd, cd;  // the windows of the slice

  // The windows of the elements: where they are in a row, and whether they exist.
#if UNION
  const int column = floor_of(x, STRIDE_W) + floor_of(PADDING_W - KERNEL_W + STRIDE_W, STRIDE_W);
  grad += column;
  u32 held = 0;
#pragma unroll
  for (int u = 0; u < WINDOWS; ++u) held |= ((u32)(column + u) < (u32)p.Wo) << u;
#else
  int columns[PACKED ? 1 : VECTOR], offsets[PACKED ? 1 : VECTOR], held[PACKED ? 1 : VECTOR];
#pragma unroll
  for (int j = 0; j < (PACKED ? 1 : VECTOR); ++j) {
    const int w = over(min(x + j, pitch - 1), p.by_inner);
    columns[j] = first_w[w], held[j] = count_w[w];
    offsets[j] = columns[j] * p.inner + min(x + j, pitch - 1) - w * p.inner;
  }
#endif

  Raw ahead[SLICES][WINDOWS];  // gradients of the next row of windows
  const Element *row_ahead;
  // Loads row o of windows, which row_ahead points to.
  auto load = [&](int o) {
#pragma unroll
    for (int i = 0; i < SLICES; ++i) {
      const bool there = (u32)o < (u32)p.Ho && i < cd;
      const Element *line = row_ahead + i * p.Ho * row_windows;
#if UNION && TOGETHER
      struct __align__(WINDOWS * sizeof(Element)) Loaded {
        Element each[WINDOWS];
      } found;
      if (there) found = *(const Loaded *)line;
#pragma unroll
      for (int u = 0; u < WINDOWS; ++u) ahead[i][u] = there ? found.each[u] : (Raw)0;
#elif UNION
#pragma unroll
      for (int u = 0; u < WINDOWS; ++u) ahead[i][u] = there && held >> u & 1 ? line[u] : (Raw)0;
#elif PACKED
#pragma unroll
      for (int m = 0; m < COLUMNS; ++m) {
        Vector found;
        if (there && m < held[0]) {
          found = *(const Vector *)(line + offsets[0] + m * p.inner);
        } else {
#pragma unroll
          for (int j = 0; j < VECTOR; ++j) found.each[j] = (Element)0;
        }
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) ahead[i][m * VECTOR + j] = found.each[j];
      }
#else
#pragma unroll
      for (int m = 0; m < COLUMNS; ++m)
#pragma unroll
        for (int j = 0; j < VECTOR; ++j)
          ahead[i][m * VECTOR + j] = there && m < held[j] ? line[offsets[j] + m * p.inner] : (Raw)0;
#endif
    }
  };

  Divisors by;
  by.d = p.divisors[0], by.rd = p.divisors[1];
  by.h = p.divisors[2 * p.Do], by.rh = p.divisors[2 * p.Do + 1];
  by.w = p.divisors[2 * (p.Do + p.Ho)], by.rw = p.divisors[2 * (p.Do + p.Ho) + 1];
#if !UNIFORM
  // The divisors of the thread's columns of windows stay in registers.
  Sum of_w[PACKED ? COLUMNS : WINDOWS], r_of_w[PACKED ? COLUMNS : WINDOWS];
#pragma unroll
  for (int u = 0; u < (PACKED ? COLUMNS : WINDOWS); ++u) {
#if UNION
    const int window = column + u;
#else
    const int window = PACKED ? columns[0] + u : columns[u % VECTOR] + u / VECTOR;
#endif
    const Sum *found = p.divisors + 2 * (p.Do + p.Ho + min(max(window, 0), p.Wo - 1));
    of_w[u] = found[0], r_of_w[u] = found[1];
  }
#endif
  Sum kept[ROWS][SLICES][WINDOWS];
  // Puts the quotients of row o of windows, whose gradients are there, into a slot; `enter` also loads the next row.
  auto divide = [&](int slot, int o) {
#pragma unroll
    for (int i = 0; i < SLICES; ++i) {
#if !UNIFORM
      const Sum *of_d = p.divisors + 2 * min(fd + i, p.Do - 1);
      const Sum *of_h = p.divisors + 2 * (p.Do + min(max(o, 0), p.Ho - 1));
      by.d = of_d[0], by.rd = of_d[1], by.h = of_h[0], by.rh = of_h[1];
#endif
#pragma unroll
      for (int u = 0; u < WINDOWS; ++u) {
#if !UNIFORM
        by.w = of_w[PACKED ? u / VECTOR : u], by.rw = r_of_w[PACKED ? u / VECTOR : u];
#endif
        kept[slot][i][u] = divided(widen((Element)ahead[i][u]), by);
      }
    }
  };
  auto enter = [&](int slot, int o) {
    divide(slot, o);
    row_ahead += row_windows;
    load(o + 1);
  };
  // Adds the quotients of one row of windows in one slice.
  auto add_row = [&](Sum *sums, const Sum *line) {
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) {
#if UNION
#pragma unroll
      for (int u = first_of(j); u <= last_of(j); ++u) sums[j] += line[u];
#else
#pragma unroll
      for (int m = 0; m < COLUMNS; ++m) sums[j] += line[m * VECTOR + j];
#endif
    }
  };

#if D_WALK
  for (int d = from_d; d < to_d; ++d)
#else
  const int d = from_d;
#endif
  {
    fd = first_d[d], cd = count_d[d];
    row_ahead = grad + fd * p.Ho * row_windows;
    out = p.out + (plane * p.D + d) * p.H * pitch + x;
#if ROWWISE
    const Element *slice = row_ahead;
    auto window_of = [&](int h) { return over(h + p.padding, p.by_stride); };
    auto fetch = [&](int h) {
      row_ahead = slice + window_of(h) * row_windows;
      load(h < p.H ? window_of(h) : p.Ho);
    };
    fetch(from);
    out += (i64)from * pitch;
    for (int h = from; h < p.H; h += step, out += (i64)step * pitch) {
      divide(0, window_of(h));
      fetch(h + step);
      Sum sums[VECTOR] = {};
      if (h + p.padding - (int)(window_of(h) * p.by_stride.n) < KERNEL) {
#pragma unroll
        for (int i = 0; i < SLICES; ++i) add_row(sums, kept[0][i]);
      }
      write(out, sums, left);
    }
#elif STRIDE
    int o = from + p.first_period, h = o * STRIDE - p.padding;
    const int last = to + p.first_period;
    out += (i64)h * pitch;
    // Writes the rows of a period. Slot u is that of its first row of windows.
    auto leave = [&](int u) {
#pragma unroll
      for (int j = 0; j < STRIDE; ++j) {
        const int n = j < KERNEL ? (KERNEL - 1 - j) / STRIDE + 1 : 0;  // rows of windows that hold this row
        Sum sums[VECTOR] = {};
#pragma unroll
        for (int i = 0; i < SLICES; ++i)
#pragma unroll
          for (int k = ROWS - n; k < ROWS; ++k) add_row(sums, kept[(u + k) % ROWS][i]);
        if (STRIDE == 1 || (u32)h < (u32)p.H) write(out, sums, left);
        ++h, out += pitch;
      }
    };
    row_ahead += (o - ROWS + 1) * row_windows;
    load(o - ROWS + 1);
    rotate<ROWS>(o, last, enter, leave);
#else
    int next = ((const int4 *)runs)[from].z, first = next;  // windows from next on are not kept; first is in slot 0
    row_ahead += next * row_windows;
    load(next);
    for (int r = from; r < to; ++r) {
      const int4 run = ((const int4 *)runs)[r];  // first row, end, first window, windows
      if (run.w > 0 && next < run.z) {  // windows without a cell
        row_ahead += (run.z - next) * row_windows, next = run.z;
        load(next);
      }
      if (run.w > 0 && first < run.z && run.z < next) {
#pragma unroll
        for (int i = 0; i < SLICES; ++i)
#pragma unroll
          for (int u = 0; u < WINDOWS; ++u) kept[0][i][u] = kept[1][i][u];
        first = run.z;
      }
      if (run.w > 0 && next == run.z) enter(0, next), first = next++;
      if (run.w > 1 && next == run.z + 1) enter(1, next++);
      Sum sums[VECTOR] = {};
#pragma unroll
      for (int i = 0; i < SLICES; ++i) {
        if (run.w > 0) add_row(sums, kept[0][i]);
        if (run.w > 1) add_row(sums, kept[1][i]);
      }
      Element *to_row = out + (i64)run.x * pitch;
      for (int h = run.x; h < run.y; ++h, to_row += pitch) write(to_row, sums, left);
    }
#endif
  }
}
