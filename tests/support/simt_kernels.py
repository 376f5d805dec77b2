"""Small kernels, right and wrong, on the host: a program for `simt.start`. Its argument names the kernel."""

from __future__ import annotations

import sys

import numpy as np

import simt
from pooltide.kernels.cuda.source import Source

# Each thread hands its number to the next one through shared memory.
ROTATE = """
#include "helper.h"
extern "C" __global__ void kernel(const Parameters p) {
  SHARED(bytes);
  int* shared = (int*)bytes;
  int i = threadIdx.x, n = blockDim.x;
  for (int round = 0; round < 3; round++) {
    shared[i] = p.x[blockIdx.x * n + i] + round;
    FIRST;
    int next = shared[(i + 1) % n];
    SECOND;
    p.out[(round * gridDim.x + blockIdx.x) * n + i] = next * helper();
  }
}
"""
# Sums of warps, a vote, a match, and lanes apart from each other.
WARP = """
extern "C" __global__ void kernel(const Parameters p) {
  int i = threadIdx.x, x = p.x[blockIdx.x * blockDim.x + i], sum = x;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  unsigned odd = __ballot_sync(~0u, x & 1), same = __match_any_sync(~0u, x % 3);
  int part = x & 1 ? __shfl_sync(odd, x, __ffs(odd) - 1) : __shfl_sync(~odd, x, __ffs(~odd) - 1);
  int* out = p.out + 5 * (blockIdx.x * blockDim.x + i);
  out[0] = sum, out[1] = __popc(odd), out[2] = __popc(same), out[3] = part;
  out[4] = __shfl_down_sync(~0u, x, 1);
}
"""
DIVERGENT = """
extern "C" __global__ void kernel(const Parameters p) {
  if (threadIdx.x < 40) __syncthreads();
  else if (threadIdx.x < 50) __syncwarp();
  else __syncthreads();
  p.out[threadIdx.x] = p.x[threadIdx.x];
}
"""
LONELY = """
extern "C" __global__ void kernel(const Parameters p) {
  if (threadIdx.x % 2) __syncwarp();
  else __syncthreads();
}
"""
OUTSIDE = """
extern "C" __global__ void kernel(const Parameters p) {
  SHARED(bytes);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (WHERE == 0) p.out[i + (i == 255)] = 1;
  if (WHERE == 1) p.out[i] = p.x[i - 1];
  if (WHERE == 2) p.out[i] = ((int*)bytes)[threadIdx.x];
  if (WHERE == 3) p.out[i] = ((const int4*)(p.x + 1))->x;
  if (WHERE == 4) p.out[i] = (0x7fffffff - 200) + i;
}
"""
PARAMETERS = (("const int*", "x"), ("int*", "out"))
ROWS = np.arange(256, dtype=np.int32) * 7 % 101
BARRIER = "__syncthreads()"


def rotate(first: str, second: str, seed: int) -> bool:
    """Whether the rotation is right in all rounds."""
    texts = {
        "device.h": "",
        "helper.h": "#pragma once\nint helper() { return FACTOR; }\n",
        "kernel.cu": ROTATE,
    }
    factors = [
        Source("kernel.cu", "kernel", PARAMETERS, (("FIRST", first), ("SECOND", second), ("FACTOR", factor)))
        for factor in (2, 3)
    ]
    simt.build(factors, texts)
    right = []
    for source, factor in zip(factors, (2, 3), strict=True):
        out = np.full((3, 4, 64), -1, np.int32)
        simt.run(source, 4, 64, 256, (), (ROWS, out), seed, texts=texts)
        want = np.roll(ROWS.reshape(4, 64), -1, axis=1)
        right.append((out == [(want + r) * factor for r in range(3)]).all())
    return all(right)


def warp() -> bool:
    out = np.full((256, 5), -1, np.int32)
    one("kernel", WARP, out)
    x = ROWS.reshape(8, 32)
    first = [[row[(row & 1) == (v & 1)][0] for v in row] for row in x]
    want = [
        np.repeat(x.sum(1), 32), np.repeat((x & 1).sum(1), 32), [(row % 3 == v % 3).sum() for row in x for v in row],
        np.ravel(first), np.ravel(np.hstack([x[:, 1:], x[:, -1:]])),
    ]  # fmt: skip
    return bool((out == np.transpose(want)).all())


def one(name: str, text: str, out: np.ndarray, where: int = 0, shared: int = 0) -> None:
    texts = {"device.h": "", "kernel.cu": text}
    source = Source("kernel.cu", "kernel", PARAMETERS, (("WHERE", where),))
    simt.run(source, 4, 64, shared, (), (ROWS, out), label=name, texts=texts)


def main(what: str) -> None:
    out = np.zeros(256, np.int32)
    if what == "right":
        assert all(rotate(BARRIER, BARRIER, seed) for seed in range(1, 9))
        assert warp()
    elif what == "missing":  # each barrier is needed
        assert not all(rotate("(void)0", BARRIER, seed) for seed in range(1, 9))
        assert not all(rotate(BARRIER, "(void)0", seed) for seed in range(1, 9))
    elif what == "divergent":
        one(what, DIVERGENT, out)
    elif what == "lonely":
        one(what, LONELY, out)
    else:
        one(what, OUTSIDE, out, int(what), shared=252)
    print("done")


if __name__ == "__main__":
    main(sys.argv[1])
