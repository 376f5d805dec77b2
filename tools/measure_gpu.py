"""Times the GPU kernels without their launches, and compares with the time to move their bytes.

    python tools/measure_gpu.py [CASE …]

A case is written as for `pooltide bench`, with dtype and `cl` last:
`max2d:256x64x112x112:k3:s2:p1:i64:bf16:cl`. Without arguments, the cases of docs/performance.md are timed,
which takes a minute. Each case is a CUDA graph of calls that write to at least four results, at least 256 MB
in all. The graph is replayed 9 times. Prints the median time of a call, and its ratio to the limit: the bytes
of the problem divided by the rate of a device-to-device copy. tests/test_gpu.py checks the results; this
program does not.
"""

from __future__ import annotations

import sys
from statistics import median

import torch

from pooltide.acceptance.notation import parse
from pooltide.acceptance.trial import problem_of
from pooltide.cli.aten import torch_dtype
from pooltide.cli.cuda_contest import COPY_BYTES, alone_seconds, elapsed_seconds, random_indices
from pooltide.cli.named import CUDA_SHAPES
from pooltide.kernels.cuda.launch import PreparedLaunches
from pooltide.problem.problem import Problem

CHANNELS_LAST = """
avg2d:256x64x112x112:k3:s2:p1 avg2d:256x256x56x56:k2:s2 avg2d:128x192x35x35:k3:s1:p1
adaptive_avg2d:256x512x17x17:o7x7 adaptive_avg2d:256x256x56x56:o9x9
adaptive_max2d:256x512x28x28:o14x14:i64 adaptive_max2d:128x64x112x112:o50x50:i64
adaptive_max2d:256x256x56x56:o7x7:i64 max2d:256x64x112x112:k3:s2:p1:i64 max3d:8x32x32x64x64:k2:i64
"""


def bytes_per_second() -> float:
    source, target = torch.ones((2, COPY_BYTES // 4), device="cuda")
    return 2 * COPY_BYTES / median(elapsed_seconds(lambda: target.copy_(source)) for _ in range(9))


def alone(case: str) -> tuple[float, Problem]:
    """Seconds that the kernels of a call take."""
    channels_last = case.endswith(":cl")
    problem = problem_of(parse(case.removesuffix(":cl")))

    def lay(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous(memory_format=torch.channels_last_3d) if channels_last else tensor

    dtype = torch_dtype(problem.dtype)
    g = lay(torch.randn(*problem.batch, *problem.output_plane, device="cuda").to(dtype))
    at = lay(random_indices(problem)) if problem.kind == "maximum_gradient" else None
    result = lay(torch.empty(*problem.batch, *problem.input_plane, dtype=dtype, device="cuda"))
    layout = "channels_last" if channels_last else "planes"
    prepared = PreparedLaunches(problem, layout, torch.cuda.current_device())
    return median(alone_seconds(lambda target: prepared(g, at, target), result)), problem


def main() -> None:
    cases = sys.argv[1:]
    for names, last in ((CUDA_SHAPES.values(), ""), (CHANNELS_LAST.split(), ":cl")) if not cases else ():
        cases += [f"{name}:{dtype}{last}" for name in names for dtype in ("f32", "bf16")]
    rate = bytes_per_second()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, copy {rate / 1e12:.2f} TB/s")
    for case in cases:
        taken, problem = alone(case)
        print(f"{case:52} {taken * 1e6:8.1f} µs {taken * rate / problem.least_bytes:6.2f}", flush=True)


if __name__ == "__main__":
    main()
