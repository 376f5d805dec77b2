// Averages of windows with long rows, far apart in memory: a warp computes 32 windows, one in each lane.
//
// If each lane read its own window, a warp would read 32 distant addresses at once. So the lanes read rows of windows
// together, LANES neighbouring cells of a window at a time, and store them in shared memory; then each lane adds
// the cells of its window, in order. LANES is 8, 16 or 32. A cell that a window does not have counts as +0 (see average_columns.cu).
#include "spans.h"
#include "quotients.h"

#define AHEAD (LANES < 16 ? LANES : 16)  // cells that a lane loads together

extern "C" __global__ void __launch_bounds__(THREADS) average_wide(const Parameters p) {
  SHARED(arena);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pitch = LANES + 1;
  // Of each window: where its row begins, and how many cells are left of it; then the cells.
  unsigned char *mine = arena + warp * p.warp_bytes;
  const Element **rows = (const Element **)mine;
  int *left = (int *)(rows + 32);
  Sum *cells = (Sum *)(left + 32);

  const i64 q = ((i64)blockIdx.x * (blockDim.x / 32) + warp) * 32 + lane;
  const bool live = q < p.total;
  u32 at = live ? (u32)q : 0, next = over(at, p.by_wo);
  const int ow = (int)(at - next * p.by_wo.n);
  at = next, next = over(at, p.by_ho);
  const int oh = (int)(at - next * p.by_ho.n);
  at = next, next = over(at, p.by_do);
  const int od = (int)(at - next * p.by_do.n);
  const Span d = span_d(p, od), h = span_h(p, oh), w = span_w(p, ow);
  const Element *from = p.x + (i64)next * p.plane_elements + w.first;

  // All lanes take as many rows and cells as the largest window has.
  Sum sum = 0;
  for (int i = 0; i < p.most_d; ++i) {
    for (int j = 0; j < p.most_h; ++j) {
      const bool has = live && i < d.count && j < h.count;
      const Element *row = from + ((i64)(d.first + i) * p.H + h.first + j) * p.W;
      for (int begin = 0; begin < p.most_w; begin += LANES) {
        rows[lane] = row + begin;
        left[lane] = has ? w.count - begin : 0;
        __syncwarp();
        const int cell = lane % LANES;
        // Loads come before stores: the compiler moves no load of `rows` and `left` across a store to shared memory.
#pragma unroll
        for (int begin_u = 0; begin_u < LANES; begin_u += AHEAD) {
          Sum found[AHEAD];
#pragma unroll
          for (int u = 0; u < AHEAD; ++u) {
            const int v = (begin_u + u) * (32 / LANES) + lane / LANES;
            found[u] = cell < left[v] ? widen(__ldg(rows[v] + cell)) : (Sum)0;
          }
#pragma unroll
          for (int u = 0; u < AHEAD; ++u) cells[((begin_u + u) * (32 / LANES) + lane / LANES) * pitch + cell] = found[u];
        }
        __syncwarp();
#pragma unroll
        for (int m = 0; m < LANES; ++m) sum += cells[lane * pitch + m];
      }
    }
  }
  if (live) p.out[q] = divided(p, sum, od, oh, ow);
}
