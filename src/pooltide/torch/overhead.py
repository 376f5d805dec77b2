"""What a call costs before any work is done: `python -m pooltide.torch.overhead`.

Each row is a gradient for a (1, 16, 4, 4) tensor (its 3-D likeness for three axes) on the CPU: PyTorch's
own operator, ours called directly, and PyTorch's operator patched; the least of many rounds, taken in turn.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import torch

import pooltide.torch as pt

from .own import ATEN

ROUNDS, CALLS = 60, 500


def least(*calls: Callable[[], Any]) -> list[float]:
    """Microseconds per call of each."""
    found = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            found[i] = min(found[i], timeit.timeit(call, number=CALLS) / CALLS * 1e6)
    return found


def measure(function: str) -> tuple[float, float, float]:
    axes = 2 if "2d" in function else 3
    g, x = torch.randn(1, 16, *[2] * axes), torch.randn(1, 16, *[4] * axes)
    aten = getattr(torch.ops.aten, ATEN[function]).default
    ours = getattr(pt, function)
    if "max" in function:
        indices = torch.randint(0, 4**axes, g.shape)
        own, direct = (lambda: aten(g, x, indices)), (lambda: ours(g, x, indices))
    elif function == "avg_pool2d_backward":
        own = lambda: aten(g, x, [2, 2], [2, 2], [0, 0], False, True, None)  # noqa: E731
        direct = lambda: ours(g, x, 2)  # noqa: E731
    else:
        own, direct = (lambda: aten(g, x)), (lambda: ours(g, x))
    plain, called = least(own, direct)
    with pt.patch():
        (patched,) = least(own)
    return plain, called, patched


def main() -> None:
    print(f"{'':31} PyTorch   direct          patched")
    for function in ATEN:
        plain, direct, patched = measure(function)
        ratios = f"{direct:6.1f} µs {direct / plain:4.2f}×  {patched:6.1f} µs {patched / plain:4.2f}×"
        print(f"{function:30} {plain:6.1f} µs {ratios}")


if __name__ == "__main__":
    main()
