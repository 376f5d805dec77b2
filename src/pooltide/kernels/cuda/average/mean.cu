// Means of whole planes: cell i is added to sum i mod 16, and the sums are added in pairs 8, 4, 2 and 1 apart.
//
// A thread has one of the 16 sums. The 16 threads of a plane are side by side, or, with channels innermost,
// `channels` threads apart, so that neighbouring threads read neighbouring elements.
#define SUMS 16

extern "C" __global__ void __launch_bounds__(THREADS) mean(const Parameters p) {
  SHARED(arena);
  Sum *all = (Sum *)arena;
  const u32 t = threadIdx.x;
#if INNER
  const u32 nth = over(t, p.by_channels), ct = t - nth * p.by_channels.n;  // nth: of the 16 sums
  const u32 image = over(blockIdx.x, p.by_c_chunks);
  const int c = (int)((blockIdx.x - image * p.by_c_chunks.n) * p.by_channels.n + ct);
  const bool live = c < p.inner && nth < SUMS;
  const Element *x = p.x + (i64)image * p.cells * p.inner + c;
  Element *out = p.out + (i64)image * p.inner + c;
  const int apart = p.by_channels.n;
#else
  const u32 nth = t % SUMS;
  const i64 plane = (i64)blockIdx.x * (THREADS / SUMS) + t / SUMS;
  const bool live = plane < p.planes;
  const Element *x = p.x + plane * p.cells;
  Element *out = p.out + plane;
  const int apart = 1;
#endif
  Sum sum = 0;
  if (live) {
#pragma unroll 8
    for (int i = nth; i < p.cells; i += SUMS) sum += widen(x[(i64)i * p.inner]);
  }
  all[t] = sum;
  for (int half = SUMS / 2; half > 0; half /= 2) {
#if INNER
    __syncthreads();
#else
    __syncwarp();
#endif
    if ((int)nth < half) {
      sum += all[t + half * apart];
      all[t] = sum;
    }
  }
#if ELEMENT == 1
  if (live && nth == 0) *out = narrow(__ddiv_rn(sum, (Sum)p.cells));
#else
  if (live && nth == 0) *out = narrow(__fdiv_rn(sum, (Sum)p.cells));
#endif
}
