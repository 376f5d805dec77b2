"""What a byte per window saves on a GPU: time and memory of max pools, forward and backward.

    python tools/measure_offsets.py

PyTorch's pools; the same with `pooltide.torch.patch()`, which read PyTorch's int64 indices; and
`pooltide.torch.functional`, which keep offsets of one byte. Medians of the device's times, which begin when
it is still busy with something else, so that nobody waits for the host; the peak is what forward and backward
allocate together.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

import pooltide.torch as pt
from pooltide.torch import functional

CASES: list[tuple[str, str, tuple[int, ...], tuple[int, ...]]] = [
    ("ResNet stem", "max_pool2d", (256, 64, 112, 112), (3, 2, 1)),
    ("U-Net-3D encoder", "max_pool3d", (4, 32, 64, 128, 128), (2,)),
]
ROUNDS = 15


def elapsed(run: Callable[[], Any], sweep: Any) -> float:
    """Microseconds between events around it."""
    for _ in range(3):
        sweep.zero_()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def measured(module: Any, pool: str, x: Any, sizes: tuple[int, ...]) -> tuple[float, float, int]:
    """Microseconds forward, backward, and bytes at the peak."""
    sweep = torch.empty(2 << 30, dtype=torch.int8, device="cuda")
    run = getattr(module, pool)
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS + 2):
        torch.cuda.reset_peak_memory_stats()
        before, results = torch.cuda.memory_allocated(), []
        times[0].append(elapsed(lambda results=results: results.append(run(x, *sizes)), sweep))
        (y,) = results
        g = torch.randn_like(y)
        times[1].append(elapsed(lambda y=y, g=g: torch.autograd.grad(y, x, g), sweep))
        peak = torch.cuda.max_memory_allocated() - before
    return median(times[0][2:]), median(times[1][2:]), peak


def main() -> None:
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    for name, pool, shape, sizes in CASES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, device="cuda", dtype=dtype).requires_grad_()
            rows = {"PyTorch": measured(F, pool, x, sizes)}
            with pt.patch():
                rows["patched"] = measured(F, pool, x, sizes)
            rows["a byte"] = measured(functional, pool, x, sizes)
            for who, (forward, backward, peak) in rows.items():
                figures = (
                    f"forward {forward:7.0f} µs  backward {backward:7.0f} µs  peak {peak / 2**20:7.0f} MiB"
                )
                print(f"{name:17} {dtype!s:14} {who:8} {figures}")
            del x


if __name__ == "__main__":
    main()
