// The gradient of averages: every cell adds the quotients of the windows that hold it, (d, h, w) ascending.
//
//     out[cell] = ((0 + q[w0]) + q[w1]) + …        q[w] = grad[w] / divisor[w], rounded once
//
// A tensor is (outer, D, H, W, inner): N·C planes with inner = 1, or N images of C channels. A block computes
// a tile: some planes, some channels of some columns, of some rows. A thread owns one column (plane, w, c) of
// the tile and walks down its rows, or `h_walk` of them in `d_walk` slices where columns are too few for a
// block, so that everything that depends on the column is computed once. Rows that lie in the same windows get
// the same sum.
//
//     STAGED   1: the quotients of the tile's windows are computed once and kept in shared memory, rows of
//              `nw · tc` quotients and a zero. 0: threads compute them from global memory, which is
//              better where windows are disjoint
//     COLUMNS  the most windows that hold a cell on the w axis; 0: more than are worth unrolling
//     FLUSH    1: the tile is contiguous in the result; its cells go through shared memory, so that short rows
//              are written by whole vectors, too
//     ROLL     1: the h axis has stride 1: the windows of the last ROWS rows stay in registers
//     ROWS, SLICES   the most windows that hold a cell on the h and d axes, if ROLL
//     UNIFORM  1: all windows have the same divisors
//     ONCE, BY_D, BY_H, BY_W   how to divide by the product, or by each axis in turn (see quotient)

// g / d as IEEE rounds it, where r is 1/d rounded. HOW: 0 d = 1; 1 d is a power of two; 2 d is odd or a power
// of two, below 2^20; 3 d is any number.
// For 2: r is within 2 ulp of 1/d, so the remainder e = g − q·d is exact, and q + e·r is g/d but for 2^-21
// ulp. g/d is never that near to a rounding boundary without lying on it. The minimum replaces the NaN that
// an infinite g leaves in e.
template <int HOW>
__device__ __forceinline__ Sum quotient(Sum g, Sum d, Sum r) {
  if (HOW == 1) return g * r;
#if ELEMENT != 1
  if (HOW == 2) {
    Sum q = __fmul_rn(g, r);
    Sum e = fminf(__fmaf_rn(-q, d, g), 3.4028234663852886e38f);
    return __fmaf_rn(e, r, q);
  }
  if (HOW == 3) return __fdiv_rn(g, d);
#else
  if (HOW >= 2) return g / d;
#endif
  return g;
}

struct Divisors {
  Sum d, rd, h, rh, w, rw;  // of one window: each axis' divisor and its reciprocal
};

__device__ __forceinline__ Sum divided(Sum g, const Divisors &by) {
  if (ONCE) {
    Sum d = by.h * by.w, r = by.rh * by.rw;
    if (BY_D) {
      d = by.d * d;
      r = by.rd * r;
    }
    return quotient<ONCE>(g, d, r);
  }
  return quotient<BY_W>(quotient<BY_H>(quotient<BY_D>(g, by.d, by.rd), by.h, by.rh), by.w, by.rw);
}

#define UNROLLED (COLUMNS > 0 ? COLUMNS : 1)
#define BATCH 8
#define VECTOR (16 / (int)sizeof(Element))

extern "C" __global__ void __launch_bounds__(THREADS) average_gradient(const Parameters p) {
  const int *first_d = p.tables, *count_d = first_d + p.D;
  const int *first_h = count_d + p.D, *count_h = first_h + p.H, *run_h = count_h + p.H;
  const int *first_w = run_h + p.H, *count_w = first_w + p.W;

  // The tile of this block.
  u32 at = blockIdx.x;
  const int h0 = at % p.h_chunks * p.h_chunk;
  at /= p.h_chunks;
  const int d0 = at % p.d_chunks * p.d_chunk;
  at /= p.d_chunks;
  const int c0 = at % p.c_chunks * p.tc;
  at /= p.c_chunks;
  const int w0 = at % p.w_chunks * p.tw;
  const i64 plane0 = (i64)(at / p.w_chunks) * p.share;
  const int h1 = min(h0 + p.h_chunk, p.H), d1 = min(d0 + p.d_chunk, p.D);  // ends of the tile
  const int tc = min(p.tc, p.inner - c0), tw = min(p.tw, p.W - w0);
  const int planes = (int)min((i64)p.share, p.planes - plane0);

  const int row_windows = p.Wo * p.inner, plane_windows = p.Do * p.Ho * row_windows;
  const Element *grad = p.grad + plane0 * plane_windows;

  // The column of this thread.
  const int t = threadIdx.x;
  const int c = t % tc, w = t / tc % tw, other = t / (tc * tw), plane = other % planes, walker = other / planes;
  const int from_d = d0 + walker % p.d_walks * p.d_walk, to_d = min(from_d + p.d_walk, d1);
  const int from_h = h0 + walker / p.d_walks * p.h_walk, to_h = min(from_h + p.h_walk, h1);
  const bool live = from_h < to_h;
  const int mine = live ? first_w[w0 + w] : 0, held = live ? count_w[w0 + w] : 0;
  Element *out = p.out + ((plane0 + plane) * p.D * p.H * p.W + w0 + w) * p.inner + c0 + c;
  const int pitch = p.W * p.inner;

  Divisors by;
  by.d = p.divisors[0], by.rd = p.divisors[1];
  by.h = p.divisors[2 * p.Do], by.rh = p.divisors[2 * p.Do + 1];
  by.w = p.divisors[2 * (p.Do + p.Ho)], by.rw = p.divisors[2 * (p.Do + p.Ho) + 1];

#if STAGED
  SHARED(arena);
  Sum *staged = (Sum *)arena;
  const int wd0 = first_d[d0], nd = first_d[d1 - 1] + count_d[d1 - 1] - wd0;
  const int wh0 = first_h[h0], nh = first_h[h1 - 1] + count_h[h1 - 1] - wh0;
  const int ww0 = first_w[w0], nw = first_w[w0 + tw - 1] + count_w[w0 + tw - 1] - ww0;
  const int width = nw * tc, row = width + 1, rows = planes * nd * nh;
  if (width > 0 && rows > 0) {
    // Threads own columns of windows here. `share` planes are more than one only if all rows are staged.
    const int lanes = min(width, (int)blockDim.x), groups = blockDim.x / lanes;
    const int group = t / lanes, deep = groups / nh, high = groups - deep * nh;
    for (int x = t - group * lanes; group < groups && x < width; x += lanes) {
      const int ww = x / tc;
      const Element *from = grad + (wd0 * p.Ho + wh0) * row_windows + (ww0 + ww) * p.inner + c0 + x - ww * tc;
#if !UNIFORM
      by.w = p.divisors[2 * (p.Do + p.Ho + ww0 + ww)], by.rw = p.divisors[2 * (p.Do + p.Ho + ww0 + ww) + 1];
#endif
      int d = group / nh, h = group - d * nh, r = group;
      auto advance = [&](int &d, int &h) {
        d += deep, h += high;
        if (h >= nh) h -= nh, ++d;
      };
      auto put = [&](int d, int h, int r, Element g) {
#if !UNIFORM
        const int wd = (wd0 + d) % p.Do, wh = wh0 + h;
        by.d = p.divisors[2 * wd], by.rd = p.divisors[2 * wd + 1];
        by.h = p.divisors[2 * (p.Do + wh)], by.rh = p.divisors[2 * (p.Do + wh) + 1];
#endif
        staged[r * row + x] = divided(widen(g), by);
      };
      // Several loads at a time, because one thread must wait for memory as long as all threads do.
      for (; r + (BATCH - 1) * groups < rows; r += BATCH * groups) {
        Element batch[BATCH];
        int next_d = d, next_h = h;
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
          batch[i] = from[(next_d * p.Ho + next_h) * row_windows];
          advance(next_d, next_h);
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
          put(d, h, r + i * groups, batch[i]);
          advance(d, h);
        }
      }
      for (; r < rows; r += groups) {
        put(d, h, r, from[(d * p.Ho + h) * row_windows]);
        advance(d, h);
      }
    }
  }
  for (int r = t; r < rows; r += blockDim.x) staged[r * row + width] = 0;
  __syncthreads();
#if !FLUSH
  if (!live) return;
#endif
  int offsets[UNROLLED];
#pragma unroll
  for (int m = 0; m < UNROLLED; ++m) offsets[m] = m < held ? (mine - ww0 + m) * tc + c : width;
  const Sum *below = staged + plane * nd * nh * row;
#if FLUSH
  // The tile begins at the same place within a vector as in the result.
  const i64 corner = (plane0 * p.D * p.H + d0 * p.H + h0) * pitch;
  const int skip = (int)((u64)(p.out + corner) / sizeof(Element) % VECTOR);
  Element *tile = (Element *)(arena + p.tile_at) + skip;
  const int size = (p.share > 1 ? planes * p.D * p.H : (d1 - d0) * (h1 - h0)) * pitch;
  out = tile - (d0 * p.H + h0) * pitch + plane * p.D * p.H * pitch + w * p.inner + c;
  if (live)
#endif
#else
  if (!live) return;
  const Element *below = grad + (i64)plane * plane_windows + mine * p.inner + c0 + c;
#endif

  for (int d = from_d; d < to_d; ++d) {
    const int fd = first_d[d], cd = count_d[d];
    Element *to = out + (d * p.H + from_h) * pitch;
#if ROLL
    // registers[j] has a row of windows; the row that enters for cell h is h + padding.
    Sum registers[ROWS][SLICES][UNROLLED];
    const Sum *slices = below + (fd - wd0) * nh * row;
    auto enter = [&](int slot, int wh) {
      const bool inside = wh >= 0 && wh < p.Ho;
      const Sum *from = slices + (wh - wh0) * row;
#pragma unroll
      for (int i = 0; i < SLICES; ++i)
#pragma unroll
        for (int m = 0; m < UNROLLED; ++m)
          registers[slot][i][m] = inside && i < cd ? from[i * nh * row + offsets[m]] : (Sum)0;
    };
#pragma unroll
    for (int j = 0; j < ROWS - 1; ++j) enter(j, from_h + p.padding - ROWS + 1 + j);
    for (int begin = from_h; begin < to_h; begin += ROWS) {
#pragma unroll
      for (int u = 0; u < ROWS; ++u) {
        if (begin + u >= to_h) break;
        enter((u + ROWS - 1) % ROWS, begin + u + p.padding);
        Sum sum = 0;
#pragma unroll
        for (int i = 0; i < SLICES; ++i)
#pragma unroll
          for (int j = 0; j < ROWS; ++j)
#pragma unroll
            for (int m = 0; m < UNROLLED; ++m) sum += registers[(u + j) % ROWS][i][m];
        *to = narrow(sum);
        to += pitch;
      }
    }
#else
    for (int h = from_h; h < to_h;) {
      const int fh = first_h[h], ch = count_h[h], end = min(run_h[h], to_h);
      Sum sum = 0;
      for (int i = 0; i < cd; ++i) {
        for (int j = 0; j < ch; ++j) {
#if STAGED
          const Sum *from = below + ((fd - wd0 + i) * nh + fh - wh0 + j) * row;
#if COLUMNS
#pragma unroll
          for (int m = 0; m < COLUMNS; ++m) sum += from[offsets[m]];
#else
          for (int m = 0; m < held; ++m) sum += from[offsets[0] + m * tc];
#endif
#else
          const Element *from = below + ((fd + i) * p.Ho + fh + j) * row_windows;
#if !UNIFORM
          by.d = p.divisors[2 * (fd + i)], by.rd = p.divisors[2 * (fd + i) + 1];
          by.h = p.divisors[2 * (p.Do + fh + j)], by.rh = p.divisors[2 * (p.Do + fh + j) + 1];
#endif
          for (int m = 0; m < held; ++m) {
#if !UNIFORM
            const Sum *of_w = p.divisors + 2 * (p.Do + p.Ho + mine + m);
            by.w = of_w[0], by.rw = of_w[1];
#endif
            sum += divided(widen(from[m * p.inner]), by);
          }
#endif
        }
      }
      const Element value = narrow(sum);
      for (; h < end; ++h, to += pitch) *to = value;
    }
#endif
  }
#if FLUSH
  __syncthreads();
  Element *to = p.out + corner - skip;
  const Element *from = tile - skip;
  for (int i = t * VECTOR; i < skip + size; i += blockDim.x * VECTOR) {
    if (i >= skip && i + VECTOR <= skip + size)
      *(uint4 *)(to + i) = *(const uint4 *)(from + i);
    else
      for (int j = max(i, skip); j < min(i + VECTOR, skip + size); ++j) to[j] = from[j];
  }
#endif
}
