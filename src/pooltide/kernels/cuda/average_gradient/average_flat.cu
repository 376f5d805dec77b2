// The gradient of averages in planes, written as one run of vectors wherever rows and planes begin.
//
//     out[cell] = ((0 + q[w0]) + q[w1]) + …        q[w] = grad[w] / divisor[w], rounded once; windows ascend
//
// A tile is contiguous in the result: some planes, some slices of a plane, or some rows of a slice. A block keeps the
// quotients of the tile's windows in shared memory: for each plane nd × nh rows of Wo windows. Then neighbouring
// threads write neighbouring vectors of a few cells, and each cell reads its windows. Vectors are short, because lanes
// that read windows far apart would meet in the same banks of shared memory.
//
// Two tables in shared memory say where a cell's values are: a table for rows of cells, and one for columns. If a row
// or column is in fewer windows than others, its other entries point to a zero. A vector may begin in one row and end
// in the next. So the table of rows ends with the first row of the next plane, and the table of columns with the first
// columns again.
//
// A cell in several windows adds their quotients. There are two cases in which a cell only copies an element:
//     no cell is in two windows: the block keeps the elements of windows instead of their quotients
//     REGIONS 1: large windows. Neighbouring cells in the same windows are a region. On each axis such cells are a run,
//                so a region is a run of slices × a run of rows × a run of columns. The block adds the quotients of each
//                region once, and keeps the element
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
#define DISJOINT (SLICES * ROWS * COLUMNS == 1)

// What the tables of rows and columns name: elements to copy, or quotients to add.
#if REGIONS || DISJOINT
typedef Element Value;
#define LINES 1
#define NAMED_COLUMNS 1
#else
typedef Sum Value;
#define LINES (SLICES * ROWS)
#define NAMED_COLUMNS COLUMNS
#endif

// What the block keeps for each window.
#if DISJOINT
typedef Element Kept;
__device__ __forceinline__ Kept kept(Sum quotient) { return narrow((Sum)0 + quotient); }
#else
typedef Sum Kept;
__device__ __forceinline__ Kept kept(Sum quotient) { return quotient; }
#endif

// Where the values of a row of cells are.
struct Line {
  int at[LINES];
};

// A row of windows of the tile.
struct Row {
  int from, to;  // its first window in p.grad, counted from the first window of the tile, and in shared memory
#if !UNIFORM
  Sum d, rd, h, rh;  // as in Divisors
#endif
};

// The cells of a vector.
__device__ __forceinline__ void put_all(Element *to, const Value *values) {
#if REGIONS || DISJOINT
#pragma unroll
  for (int k = 0; k < VECTOR; ++k) to[k] = values[k];
#else
  narrow_all<VECTOR>(to, values);
#endif
}

// What a block computes: slices d0 … d1 - 1 and rows h0 … h1 - 1 of `planes` planes, and their windows.
struct Tile {
  int d0, d1, h0, h1, planes;
  i64 plane0;
  int wd0, nd, wh0, nh;    // the first slice and row of windows, and how many
  int rows;                // of cells, in a plane
  int pitch, plane_kept;   // windows in a row of shared memory, and of a plane, with zeros
  int run_rows, run_plane; // with REGIONS: runs of rows in a slice, and regions of a plane
};

// The tables of all axes in p.tables.
struct Axes {
  const int *first_d, *count_d, *first_h, *count_h, *first_w, *count_w;  // windows of each cell
#if REGIONS
  const int *run_d, *run_h, *run_w;  // the run of each cell
  const int2 *of_d, *of_h, *of_w;    // the first window of each run, and how many
#endif
};

__device__ __forceinline__ Axes axes_of(const Parameters &p) {
  Axes a;
  a.first_d = p.tables, a.count_d = a.first_d + p.D, a.first_h = a.count_d + p.D, a.count_h = a.first_h + p.H;
  a.first_w = a.count_h + p.H, a.count_w = a.first_w + p.W;
#if REGIONS
  a.run_d = a.count_w + p.W, a.run_h = a.run_d + p.D, a.run_w = a.run_h + p.H;
  a.of_d = (const int2 *)(p.tables + p.runs_at), a.of_h = a.of_d + p.by_runs_d.n, a.of_w = a.of_h + p.by_runs_h.n;
#endif
  return a;
}

__device__ __forceinline__ Tile tile_of(const Parameters &p, const Axes &a) {
  Tile t;
  u32 at = blockIdx.x, rest = over(at, p.by_h_chunks);
  t.h0 = (at - rest * p.by_h_chunks.n) * p.h_chunk, t.h1 = min(t.h0 + p.h_chunk, p.H);
  at = rest, rest = over(at, p.by_d_chunks);
  t.d0 = (at - rest * p.by_d_chunks.n) * p.d_chunk, t.d1 = min(t.d0 + p.d_chunk, p.D);
  t.plane0 = (i64)rest * p.share;
  t.planes = (int)min((i64)p.share, p.planes - t.plane0);
  t.wd0 = a.first_d[t.d0], t.nd = a.first_d[t.d1 - 1] + a.count_d[t.d1 - 1] - t.wd0;
  t.wh0 = a.first_h[t.h0], t.nh = a.first_h[t.h1 - 1] + a.count_h[t.h1 - 1] - t.wh0;
  t.rows = (t.d1 - t.d0) * (t.h1 - t.h0);
  t.pitch = p.Wo + ZERO_COLUMN, t.plane_kept = (t.nd * t.nh + ZERO_ROW) * t.pitch;
#if REGIONS
  t.run_rows = a.run_h[t.h1 - 1] - a.run_h[t.h0] + 1;
  t.run_plane = (a.run_d[t.d1 - 1] - a.run_d[t.d0] + 1) * t.run_rows * p.by_runs_w.n;
#endif
  return t;
}

// The number of values that a plane of the tile has.
__device__ __forceinline__ int plane_values(const Tile &tile) { return REGIONS ? tile.run_plane : tile.plane_kept; }

// Fills the tables of rows (offsets in bytes) and of columns (NAMED_COLUMNS tables of numbers in a row of values).
__device__ __forceinline__ void name_values(const Parameters &p, const Axes &a, const Tile &tile, Line *lines,
                                            unsigned short *columns) {
  for (int i = threadIdx.x; i < p.W + VECTOR - 1; i += THREADS) {
    const int w = i < p.W ? i : i - p.W;
#if REGIONS
    columns[i] = a.run_w[w];
#else
#pragma unroll
    for (int m = 0; m < COLUMNS; ++m) columns[m * (p.W + VECTOR) + i] = m < a.count_w[w] ? a.first_w[w] + m : p.Wo;
#endif
  }
  const int height = tile.h1 - tile.h0;
  for (int i = threadIdx.x; i < tile.rows + 1; i += THREADS) {
    const int r = i < tile.rows ? i : 0, nth = r / height, d = tile.d0 + nth, h = tile.h0 + r - nth * height;
    const int next = i < tile.rows ? 0 : plane_values(tile);
#if REGIONS
    const int row = (a.run_d[d] - a.run_d[tile.d0]) * tile.run_rows + a.run_h[h] - a.run_h[tile.h0];
    lines[i].at[0] = (row * (int)p.by_runs_w.n + next) * (int)sizeof(Value);
#else
    const int od = a.first_d[d] - tile.wd0, oh = a.first_h[h] - tile.wh0;
#pragma unroll
    for (int k = 0; k < LINES; ++k) {
      const bool held = k / ROWS < a.count_d[d] && k % ROWS < a.count_h[h];
      const int row = held ? (od + k / ROWS) * tile.nh + oh + k % ROWS : tile.nd * tile.nh;
      lines[i].at[k] = (row * tile.pitch + next) * (int)sizeof(Value);
    }
#endif
  }
}

// Fills the table of rows of windows, and the zeros behind rows and planes.
__device__ __forceinline__ void name_windows(const Parameters &p, const Tile &tile, Row *rows, Kept *windows) {
  const int t = threadIdx.x, nd = tile.nd, nh = tile.nh;
  for (int i = t; i < tile.planes * nd * nh; i += THREADS) {
#if SHARED_PLANES
    const u32 slices = over(i, p.by_ho), plane = over(slices, p.by_do);
    const int h = i - slices * p.Ho, d = slices - plane * p.Do;
#else
    const u32 plane = 0;
    const int d = nd == 1 ? 0 : i / nh, h = i - d * nh;
#endif
    Row row;
    row.from = ((plane * p.Do + d) * p.Ho + h) * p.Wo;
    row.to = plane * tile.plane_kept + (d * nh + h) * tile.pitch;
#if !UNIFORM
    const Sum *of_d = p.divisors + 2 * (tile.wd0 + d), *of_h = p.divisors + 2 * (p.Do + tile.wh0 + h);
    row.d = of_d[0], row.rd = of_d[1], row.h = of_h[0], row.rh = of_h[1];
#endif
    rows[i] = row;
    if (ZERO_COLUMN) windows[row.to + p.Wo] = 0;
  }
  if (ZERO_ROW)
    for (int i = t; i < tile.planes * tile.pitch; i += THREADS) {
      const u32 plane = i / tile.pitch;
      windows[plane * tile.plane_kept + nd * nh * tile.pitch + i - plane * tile.pitch] = 0;
    }
}

// Loads windows i, i + THREADS, … of the tile. `linear`: they are neighbours in memory, and `rows` is not needed.
__device__ __forceinline__ void load(const Parameters &p, const Element *grad, const Row *rows, bool linear, int i,
                                     int count, Element *batch) {
#pragma unroll
  for (int k = 0; k < BATCH; ++k, i += THREADS) {
    if (i >= count) break;
    const u32 row = linear ? 0 : over(i, p.by_wo);
    batch[k] = grad[linear ? i : rows[row].from + i - row * p.Wo];
  }
}

// Keeps windows i, i + THREADS, … of the tile.
__device__ __forceinline__ void keep(const Parameters &p, const Row *rows, Divisors by, int i, int count,
                                     const Element *batch, Kept *windows) {
#pragma unroll
  for (int k = 0; k < BATCH; ++k, i += THREADS) {
    if (i >= count) break;
    const u32 nth = over(i, p.by_wo), w = i - nth * p.Wo;
    const Row row = rows[nth];
#if !UNIFORM
    const Sum *of_w = p.divisors + 2 * (p.Do + p.Ho + w);
    by.d = row.d, by.rd = row.rd, by.h = row.h, by.rh = row.rh, by.w = of_w[0], by.rw = of_w[1];
#endif
    windows[row.to + w] = kept(divided(widen(batch[k]), by));
  }
}

#if REGIONS
// Adds the quotients of every region.
__device__ __forceinline__ void add_regions(const Parameters &p, const Axes &a, const Tile &tile,
                                            const Kept *windows, Element *values) {
  const int rd0 = a.run_d[tile.d0], rh0 = a.run_h[tile.h0];
  for (int i = threadIdx.x; i < tile.planes * tile.run_plane; i += THREADS) {
    const u32 row = over(i, p.by_runs_w);
#if SHARED_PLANES
    const u32 slices = over(row, p.by_runs_h), plane = over(slices, p.by_runs_d);
    const u32 h = row - slices * p.by_runs_h.n, d = slices - plane * p.by_runs_d.n;
#else
    const u32 plane = 0, d = tile.d1 - tile.d0 == 1 ? 0 : row / tile.run_rows, h = row - d * tile.run_rows;
#endif
    const int2 of_d = a.of_d[rd0 + d], of_h = a.of_h[rh0 + h], of_w = a.of_w[i - row * p.by_runs_w.n];
    Sum sum = 0;
    const Kept *line = windows + plane * tile.plane_kept + of_w.x + ((of_d.x - tile.wd0) * tile.nh + of_h.x - tile.wh0) * tile.pitch;
#pragma unroll
    for (int k = 0; k < SLICES; ++k, line += tile.nh * tile.pitch)
#pragma unroll
      for (int j = 0; j < ROWS; ++j)
#pragma unroll
        for (int m = 0; m < COLUMNS; ++m)
          if (k < of_d.y && j < of_h.y && m < of_w.y) sum += line[j * tile.pitch + m];
    values[i] = narrow(sum);
  }
}
#endif

// Writes the cells of the tile: single ones up to the first vector boundary and after the last one, vectors between.
__device__ __forceinline__ void write_cells(const Parameters &p, const Tile &tile, const Line *lines,
                                            const unsigned short *columns, const Value *values) {
  // The value of the cell in column w of a row; the values of its plane begin at `below`.
  auto cell = [&](const char *below, const Line &line, int w) {
#if REGIONS || DISJOINT
    return ((const Value *)(below + line.at[0]))[columns[w]];
#else
    Sum sum = 0;
#pragma unroll
    for (int k = 0; k < LINES; ++k)
#pragma unroll
      for (int m = 0; m < COLUMNS; ++m)
        sum += ((const Sum *)(below + line.at[k]))[columns[m * (p.W + VECTOR) + w]];
    return sum;
#endif
  };
  auto element = [](Value value) {
#if REGIONS || DISJOINT
    return value;
#else
    return narrow(value);
#endif
  };
  const int t = threadIdx.x, rows = tile.rows, of_plane = plane_values(tile);
  const i64 corner = ((tile.plane0 * p.D + tile.d0) * p.H + tile.h0) * p.W;
  const int size = tile.planes * rows * p.W, head = min((int)(-corner & (VECTOR - 1)), size);
  const int tail = size - ((size - head) & (VECTOR - 1));  // after the last whole vector
  Element *out = p.out + corner;

  // Where element e of the tile is.
  int w = 0, r = 0;
  const char *below = (const char *)values;
  auto find = [&](int e) {
    const u32 row = over(e, p.by_w), plane = SHARED_PLANES ? over(row, p.by_rows) : 0;
    w = e - row * p.W, r = row - plane * rows;
    below = (const char *)(values + plane * of_plane);
  };
  if (t < head + size - tail) {
    const int e = t < head ? t : tail + t - head;
    find(e);
    out[e] = element(cell(below, lines[r], w));
  }
  int e = head + t * VECTOR;
  find(e);
  out += e;
  const int step = p.step_planes * of_plane * (int)sizeof(Value), next = of_plane * (int)sizeof(Value);
  for (; e < tail; e += THREADS * VECTOR, out += THREADS * VECTOR) {
    Line line = lines[r];
    Value found[VECTOR];
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) {
      if (k && w + k == p.W) line = lines[r + 1];
      found[k] = cell(below, line, w + k);
    }
    Vector made;
    put_all(made.each, found);
    *(Vector *)out = made;
    w += p.step_w, r += p.step_rows, below += step;
    if (w >= p.W) w -= p.W, ++r;
    if (SHARED_PLANES && r >= rows) r -= rows, below += next;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) average_flat(const Parameters p) {
  SHARED(arena);
  Line *lines = (Line *)arena;
  unsigned short *columns = (unsigned short *)(arena + p.columns_at);
  Row *rows = (Row *)(arena + p.rows_at);
  Kept *windows = (Kept *)(arena + p.staged_at);
  const Axes axes = axes_of(p);
  const Tile tile = tile_of(p, axes);
  const Element *grad = p.grad + (tile.plane0 * p.Do * p.Ho + tile.wd0 * p.Ho + tile.wh0) * p.Wo;
  const int count = tile.planes * tile.nd * tile.nh * p.Wo, t = threadIdx.x;
  const bool linear = SHARED_PLANES || tile.nd == 1 || tile.nh == p.Ho;
  Element batch[BATCH];
  if (linear) load(p, grad, rows, true, t, count, batch);  // now, so that they arrive while tables are filled
  name_values(p, axes, tile, lines, columns);
  name_windows(p, tile, rows, windows);
  __syncthreads();
  Divisors by;
  by.d = p.divisors[0], by.rd = p.divisors[1];
  by.h = p.divisors[2 * p.Do], by.rh = p.divisors[2 * p.Do + 1];
  by.w = p.divisors[2 * (p.Do + p.Ho)], by.rw = p.divisors[2 * (p.Do + p.Ho) + 1];
  for (int i = t; i < count; i += BATCH * THREADS) {
    if (!linear || i > t) load(p, grad, rows, linear, i, count, batch);
    keep(p, rows, by, i, count, batch, windows);
  }
  __syncthreads();
#if REGIONS
  Element *values = (Element *)(arena + p.values_at);
  add_regions(p, axes, tile, windows, values);
  __syncthreads();
  write_cells(p, tile, lines, columns, values);
#else
  write_cells(p, tile, lines, columns, windows);
#endif
}
