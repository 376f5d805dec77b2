"""What a byte per window saves on a GPU: time and memory of max pools, forward and backward.

    python tools/measure_offsets.py

PyTorch's pools; the same with `pooltide.torch.patch()`, which read PyTorch's int64 indices; and
`pooltide.torch.functional`, which keep offsets of one byte. Medians of the device's times; the peak is what
forward and backward allocate together.
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


def elapsed(run: Callable[[], Any]) -> float:
    """Microseconds between events around it."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def measured(pool: Callable[[Any], Any], x: Any) -> tuple[float, float, int]:
    """Microseconds forward, backward, and bytes at the peak."""
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS + 2):
        torch.cuda.reset_peak_memory_stats()
        before, results = torch.cuda.memory_allocated(), []
        times[0].append(elapsed(lambda results=results: results.append(pool(x))))
        (y,) = results
        g = torch.randn_like(y)
        times[1].append(elapsed(lambda y=y, g=g: torch.autograd.grad(y, x, g)))
        peak = torch.cuda.max_memory_allocated() - before
    return median(times[0][2:]), median(times[1][2:]), peak


def main() -> None:
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    for name, pool, shape, sizes in CASES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, device="cuda", dtype=dtype).requires_grad_()
            rows = {"PyTorch": measured(lambda x, f=getattr(F, pool), s=sizes: f(x, *s), x)}
            with pt.patch():
                rows["patched"] = measured(lambda x, f=getattr(F, pool), s=sizes: f(x, *s), x)
            rows["a byte"] = measured(lambda x, f=getattr(functional, pool), s=sizes: f(x, *s), x)
            for who, (forward, backward, peak) in rows.items():
                figures = (
                    f"forward {forward:7.0f} µs  backward {backward:7.0f} µs  peak {peak / 2**20:7.0f} MiB"
                )
                print(f"{name:17} {dtype!s:14} {who:8} {figures}")
            del x


if __name__ == "__main__":
    main()
