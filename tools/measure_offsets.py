"""Time and memory that one-byte offsets save in max pools, forward and backward.

    python tools/measure_offsets.py          on a GPU
    MALLOC_MMAP_THRESHOLD_=65536 python tools/measure_offsets.py cpu

Compares, in turns: PyTorch's pools; PyTorch's pools under `pooltide.torch.patch()`, which read int64 indices;
and `pooltide.torch.functional`, which saves one-byte offsets. Prints medians. The peak is the memory that
forward and backward use beyond the input: allocated memory on a GPU, resident memory on a CPU. On a CPU the
environment variable makes freed memory leave the process. On a GPU, other work runs before the timed calls,
so that the times do not include the host.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

import pooltide.torch as pt
from pooltide.torch import functional

CASES: dict[str, list[tuple[str, str, tuple[int, ...], tuple[int, ...]]]] = {
    "cuda": [
        ("ResNet stem", "max_pool2d", (256, 64, 112, 112), (3, 2, 1)),
        ("U-Net-3D encoder", "max_pool3d", (4, 32, 64, 128, 128), (2,)),
    ],
    "cpu": [
        ("ResNet stem", "max_pool2d", (32, 64, 112, 112), (3, 2, 1)),
        ("U-Net-3D encoder", "max_pool3d", (1, 32, 64, 96, 96), (2,)),
    ],
}
CONTESTANTS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "PyTorch": (F, nullcontext),
    "patched": (F, pt.patch),
    "a byte": (functional, nullcontext),
}
ROUNDS = 11
Taken = list[float]  # microseconds


@contextmanager
def timed_on_gpu(taken: Taken) -> Iterator[None]:
    sweep = torch.empty(2 << 30, dtype=torch.int8, device="cuda")
    for _ in range(3):
        sweep.zero_()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    yield
    end.record()
    torch.cuda.synchronize()
    taken.append(float(begin.elapsed_time(end)) * 1e3)


@contextmanager
def timed_on_cpu(taken: Taken) -> Iterator[None]:
    time.sleep(0.02)  # until nobody's threads spin any more
    begin = time.perf_counter()
    yield
    taken.append((time.perf_counter() - begin) * 1e6)


def resident(which: str) -> int:
    found = re.search(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def reset_peak(device: str) -> int:
    """Bytes in use now; the peak begins there."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else resident("VmHWM")


def one_round(
    device: str, run: Callable[..., Any], x: Any, sizes: tuple[int, ...]
) -> tuple[float, float, int]:
    """Microseconds forward, backward, and bytes at the peak."""
    timed = timed_on_gpu if device == "cuda" else timed_on_cpu
    taken: Taken = []
    before = reset_peak(device)
    with timed(taken):
        y = run(x, *sizes)
    g = torch.ones_like(y)
    with timed(taken):
        torch.autograd.grad(y, x, g)
    return taken[0], taken[1], peak(device) - before


def main(device: str) -> None:
    where = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    print(where, "PyTorch", torch.__version__)
    for name, pool, shape, sizes in CASES[device]:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, device=device, dtype=dtype).requires_grad_()
            found: dict[str, list[tuple[float, float, int]]] = {who: [] for who in CONTESTANTS}
            for _ in range(ROUNDS + 2):
                for who, (module, state) in CONTESTANTS.items():
                    with state():
                        found[who].append(one_round(device, getattr(module, pool), x, sizes))
            for who, rounds in found.items():
                forward, backward, most = (median(values) for values in zip(*rounds[2:], strict=True))
                print(
                    f"{name:17} {dtype!s:14} {who:8} forward {forward:7.0f} µs  "
                    f"backward {backward:7.0f} µs  peak {most / 2**20:7.0f} MiB"
                )
            del x


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["cuda"]))
