"""Times the GPU forwards without their launches; compares with PyTorch and with the time to move their bytes.

    python tools/measure_gpu_forwards.py [WORD]

Times the cases whose names hold WORD, by default all. Each is a CUDA graph of calls that write to at least
four results, at least 256 MB in all, replayed 9 times. Prints the kernel, the median time of a call, and the
ratios of our time and of PyTorch's to the limit: the time in which a copy moves the bytes of the problem.
tests/test_gpu_forwards.py checks the results; this program does not.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

from pooltide.cli.aten import torch_dtype
from pooltide.cli.cuda_contest import COPY_BYTES, alone_seconds, elapsed_seconds
from pooltide.geometry import UNIT, Axis, strided_outputs
from pooltide.kernels.cuda.forward_launch import PreparedForward
from pooltide.operators.dtypes import DTYPES
from pooltide.problem.problem import Problem, with_offsets

# pool, batch, plane, then kernel, stride and padding or output sizes
CASES = [
    ("max", (256, 64), 112, (3, 2, 1)),
    ("max", (64, 64), 224, (2, 2, 0)),
    ("max", (128, 192), 28, (3, 1, 1)),
    ("max", (64, 512), 20, (5, 1, 2)),
    ("max", (64, 512), 20, (13, 1, 6)),
    ("adaptive_max", (256, 256), 56, (7,)),
    ("adaptive_max", (256, 512), 17, (7,)),
    ("adaptive_max", (256, 2048), 7, (1,)),
    ("avg", (256, 256), 56, (2, 2, 0)),
    ("avg", (128, 192), 35, (3, 1, 1)),
    ("avg", (64, 64), 112, (3, 2, 1)),
    ("avg", (16, 64), 128, (11, 1, 5)),
    ("adaptive_avg", (256, 512), 17, (7,)),
    ("adaptive_avg", (64, 64), 224, (7,)),
    ("adaptive_avg", (256, 2048), 7, (1,)),
]


def problem_of(pool: str, batch: tuple[int, int], length: int, sizes: tuple[int, ...], dtype: str) -> Problem:
    if len(sizes) == 3:
        k, s, p = sizes
        axis = Axis(length, strided_outputs(length, k, s, p, False), k, s, p)
    else:
        axis = Axis(length, sizes[0])
    axes = (UNIT, axis, axis)
    if pool.endswith("max"):
        found = Problem("maximum", batch, axes, DTYPES[dtype])
        return with_offsets(found) or found
    quotient = "extent" if len(sizes) == 3 else "mean" if sizes == (1,) else "chained"
    return Problem("average", batch, axes, DTYPES[dtype], quotient)


def pytorch(pool: str, x: Any, sizes: tuple[int, ...]) -> Any:
    """PyTorch's forward; of maxima with indices, as training has it."""
    more = (True,) if pool.startswith("adaptive_max") else ()
    if len(sizes) == 1:
        return getattr(F, f"{pool}_pool2d")(x, sizes[0], *more)
    if pool == "max":
        return F.max_pool2d(x, *sizes, return_indices=True)
    return F.avg_pool2d(x, *sizes)


def main() -> None:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    source, target = torch.ones((2, COPY_BYTES // 4), device="cuda")
    rate = 2 * COPY_BYTES / median(elapsed_seconds(lambda: target.copy_(source)) for _ in range(9))
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, copy {rate / 1e12:.2f} TB/s")
    for pool, batch, length, sizes in CASES:
        for dtype in ("FLOAT32", "BFLOAT16"):
            for layout in ("planes", "channels_last"):
                problem = problem_of(pool, batch, length, sizes, dtype)
                name = f"{problem} {layout}"
                if word not in name:
                    continue
                kind = torch.channels_last if layout == "channels_last" else torch.contiguous_format
                x = torch.randn(*batch, length, length, device="cuda", dtype=torch_dtype(problem.dtype))
                x = x.contiguous(memory_format=kind)
                shape = (*batch, *problem.output_plane[1:])
                out = torch.empty(shape, device="cuda", dtype=x.dtype).contiguous(memory_format=kind)
                places = torch.empty_like(out, dtype=torch.uint8) if problem.index_bytes else None
                ready = PreparedForward(problem, layout, torch.cuda.current_device())
                ours = median(alone_seconds(lambda to, x=x, at=places, run=ready: run(x, to, at), out))
                call = lambda _, x=x, pool=pool, sizes=sizes: pytorch(pool, x, sizes)  # noqa: E731
                theirs = median(alone_seconds(call, out))
                limit = problem.least_bytes / rate
                print(f"{name:90} {ready.kernel:18} {ours * 1e6:8.1f} µs {ours / limit:6.2f}", end="")
                print(f"   PyTorch {theirs / limit:6.2f}", flush=True)


if __name__ == "__main__":
    main()
