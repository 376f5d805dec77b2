// The gradient of averages in planes, written as one run of vectors wherever rows and planes begin.
//
//     out[cell] = ((0 + q[w0]) + q[w1]) + …        q[w] = grad[w] / divisor[w], rounded once; windows ascend
//
// A tile is contiguous in the result: some planes, some slices of a plane, or some rows of a slice. A block keeps the
// quotients of the tile's windows in shared memory: for each plane nd × nh rows of Wo windows. Then neighbouring
// threads write neighbouring vectors of a few cells, and each cell reads its windows. Vectors are short, because lanes
// that read windows far apart would meet in the same banks of shared memory.
//
// Two tables in shared memory say where the quotients of a cell are: a table for rows of cells, and one for columns. If
// a row or column is in fewer windows than others, its other entries point to a zero. A vector may begin in one row and
// end in the next. So the table of rows ends with the first row of the next plane, and the table of columns with the
// first columns again.
//
//     SLICES, ROWS, COLUMNS   the most windows that hold a cell on the d, h and w axis
//     ZERO_COLUMN, ZERO_ROW   1: rows of quotients end with a zero; those of a plane end with a row of zeros
//     SHARED_PLANES  1: a tile has several whole planes; 0: it is a part of one plane
//     UNIFORM  1: all windows have the same divisors
//     VECTOR   elements of a vector, no more than a row has; 1 if tensors begin anywhere
//     ONCE, BY_D, BY_H, BY_W   how to divide: see gradient_quotients.h
#include "gradient_quotients.h"

struct __align__(VECTOR * sizeof(Element)) Vector {
  Element each[VECTOR];
};

#define BATCH 4  // loads that a thread has under way
#define LINES (SLICES * ROWS)

struct Line {
  int at[LINES];
};

extern "C" __global__ void __launch_bounds__(THREADS) average_flat(const Parameters p) {
  SHARED(arena);
  const int *first_d = p.tables, *count_d = first_d + p.D, *first_h = count_d + p.D, *count_h = first_h + p.H;
  const int *first_w = count_h + p.H, *count_w = first_w + p.W;
  const int t = threadIdx.x;

  // The tile: slices d0 … d1 - 1 and rows h0 … h1 - 1 of `planes` planes.
  u32 at = blockIdx.x, rest = over(at, p.by_h_chunks);
  const int h0 = (at - rest * p.by_h_chunks.n) * p.h_chunk, h1 = min(h0 + p.h_chunk, p.H);
  at = rest, rest = over(at, p.by_d_chunks);
  const int d0 = (at - rest * p.by_d_chunks.n) * p.d_chunk, d1 = min(d0 + p.d_chunk, p.D);
  const i64 plane0 = (i64)rest * p.share;
  const int planes = (int)min((i64)p.share, p.planes - plane0);
  const int wd0 = first_d[d0], nd = first_d[d1 - 1] + count_d[d1 - 1] - wd0;
  const int wh0 = first_h[h0], nh = first_h[h1 - 1] + count_h[h1 - 1] - wh0;
  const int rows = (d1 - d0) * (h1 - h0), pitch = p.Wo + ZERO_COLUMN, of_plane = (nd * nh + ZERO_ROW) * pitch;

  Line *lines = (Line *)arena;  // offsets in bytes
  unsigned short *columns = (unsigned short *)(arena + p.columns_at);  // COLUMNS tables of quotients' numbers in a row
  Sum *staged = (Sum *)(arena + p.staged_at);
  for (int i = t; i < p.W + VECTOR - 1; i += THREADS) {
    const int w = i < p.W ? i : i - p.W;
#pragma unroll
    for (int m = 0; m < COLUMNS; ++m) columns[m * (p.W + VECTOR) + i] = m < count_w[w] ? first_w[w] + m : p.Wo;
  }
  for (int i = t; i < rows + 1; i += THREADS) {
    const int r = i < rows ? i : 0, nth = r / (h1 - h0), d = d0 + nth, h = h0 + r - nth * (h1 - h0);
    const int od = first_d[d] - wd0, oh = first_h[h] - wh0;
#pragma unroll
    for (int k = 0; k < LINES; ++k) {
      const bool held = k / ROWS < count_d[d] && k % ROWS < count_h[h];
      const int row = held ? (od + k / ROWS) * nh + oh + k % ROWS : nd * nh;
      lines[i].at[k] = (row * pitch + (i < rows ? 0 : of_plane)) * (int)sizeof(Sum);
    }
  }

  if (ZERO_COLUMN)
    for (int i = t; i < planes * (nd * nh + ZERO_ROW); i += THREADS) staged[i * pitch + p.Wo] = 0;
  if (ZERO_ROW)
    for (int i = t; i < planes * p.Wo; i += THREADS) {
      const u32 plane = over(i, p.by_wo);
      staged[plane * of_plane + nd * nh * pitch + i - plane * p.Wo] = 0;
    }

  // The quotients. Windows of a tile are neighbours in memory, but for gaps between slices.
  Divisors by;
  by.d = p.divisors[0], by.rd = p.divisors[1];
  by.h = p.divisors[2 * p.Do], by.rh = p.divisors[2 * p.Do + 1];
  by.w = p.divisors[2 * (p.Do + p.Ho)], by.rw = p.divisors[2 * (p.Do + p.Ho) + 1];
  const Element *grad = p.grad + (plane0 * p.Do * p.Ho + wd0 * p.Ho + wh0) * p.Wo;
  const int windows = planes * nd * nh * p.Wo, slice = nh * p.Wo, gap = (p.Ho - nh) * p.Wo;
  auto source = [&](int i) { return SHARED_PLANES || nd == 1 ? i : i + i / slice * gap; };
  auto put = [&](int i, Element g) {
    const u32 row = over(i, p.by_wo), w = i - row * p.Wo;
#if SHARED_PLANES
    const u32 slices = over(row, p.by_ho), plane = over(slices, p.by_do);
    const u32 h = row - slices * p.Ho, d = slices - plane * p.Do;
#else
    const u32 plane = 0, d = nd == 1 ? 0 : row / nh, h = row - d * nh;
#endif
    const u32 to = i + ZERO_COLUMN * row + ZERO_ROW * plane * pitch;
#if !UNIFORM
    const Sum *of_d = p.divisors + 2 * (wd0 + d), *of_h = p.divisors + 2 * (p.Do + wh0 + h);
    const Sum *of_w = p.divisors + 2 * (p.Do + p.Ho + w);
    by.d = of_d[0], by.rd = of_d[1], by.h = of_h[0], by.rh = of_h[1], by.w = of_w[0], by.rw = of_w[1];
#endif
    staged[to] = divided(widen(g), by);
  };
  int i = t;
  for (; i + (BATCH - 1) * THREADS < windows; i += BATCH * THREADS) {
    Element batch[BATCH];
#pragma unroll
    for (int k = 0; k < BATCH; ++k) batch[k] = grad[source(i + k * THREADS)];
    keep_order();
#pragma unroll
    for (int k = 0; k < BATCH; ++k) put(i + k * THREADS, batch[k]);
  }
  for (; i < windows; i += THREADS) put(i, grad[source(i)]);
  __syncthreads();

  // The cell in column w of a row; the quotients of its plane begin at `below`.
  auto cell = [&](const char *below, const Line &line, int w) {
    Sum sum = 0;
#pragma unroll
    for (int k = 0; k < LINES; ++k)
#pragma unroll
      for (int m = 0; m < COLUMNS; ++m)
        sum += ((const Sum *)(below + line.at[k]))[columns[m * (p.W + VECTOR) + w]];
    return sum;
  };

  const i64 corner = ((plane0 * p.D + d0) * p.H + h0) * p.W;
  const int size = planes * rows * p.W, head = min((int)(-corner & (VECTOR - 1)), size);
  const int tail = size - ((size - head) & (VECTOR - 1));  // after the last whole vector
  Element *out = p.out + corner;

  // Where element e of the tile is.
  int w = 0, r = 0;
  const char *below = (const char *)staged;
  auto find = [&](int e) {
    const u32 row = over(e, p.by_w), plane = SHARED_PLANES ? over(row, p.by_rows) : 0;
    w = e - row * p.W, r = row - plane * rows;
    below = (const char *)(staged + plane * of_plane);
  };
  if (t < head + size - tail) {
    const int e = t < head ? t : tail + t - head;
    find(e);
    out[e] = narrow(cell(below, lines[r], w));
  }
  int e = head + t * VECTOR;
  find(e);
  out += e;
  const int step = p.step_planes * of_plane * (int)sizeof(Sum), next = of_plane * (int)sizeof(Sum);
  for (; e < tail; e += THREADS * VECTOR, out += THREADS * VECTOR) {
    Line line = lines[r];
    Sum sums[VECTOR];
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) {
      if (k && w + k == p.W) line = lines[r + 1];
      sums[k] = cell(below, line, w + k);
    }
    Vector made;
    narrow_all<VECTOR>(made.each, sums);
    *(Vector *)out = made;
    w += p.step_w, r += p.step_rows, below += step;
    if (w >= p.W) w -= p.W, ++r;
    if (SHARED_PLANES && r >= rows) r -= rows, below += next;
  }
}
