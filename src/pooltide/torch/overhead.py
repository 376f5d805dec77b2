"""Measures the cost of a call on tiny tensors, and the speedup over PyTorch on large ones; prints tables.

    python -m pooltide.torch.overhead
    python -m pooltide.torch.overhead cuda
    python -m pooltide.torch.overhead first
    python -m pooltide.torch.overhead large

Each row is a gradient for a (1, 16, 4, 4) tensor (4 or 4×4×4 in 1-D and 3-D) on the CPU: PyTorch's operator
(in 1-D the 2-D operator with height 1), our function, and PyTorch's operator under patch(). The time is the
minimum over many rounds; the contestants alternate.
With `cuda`: the same on a GPU, also for (8, 64, 28, 28), without synchronization between the calls.
With `first`: the first call of a gradient in a new process on a GPU, for (8, 64, 28, 28), if its kernel must
be compiled, and if the kernel is in the cache on disk. Another gradient was called before.
With `large`: PyTorch's time ÷ ours, through tensors and through NumPy; each call allocates its result.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import pooltide
import pooltide.torch as pt

from ..operators.catalog import gradients, operators
from .aten_fallback import ATEN, aten_call

ROUNDS, CALLS = 60, 500
SMALLEST, SMALL = (1, 16, 4), (8, 64, 28)  # N, C, and the length of every axis


def least(
    *calls: Callable[[], Any],
    rounds: int = ROUNDS,
    number: int = CALLS,
    finish: Callable[[], Any] = lambda: None,
) -> list[float]:
    """Returns the minimum microseconds per call for each of `calls`, including `finish` after each round."""
    found = [float("inf")] * len(calls)
    order = list(range(len(calls)))
    for _ in range(rounds):
        order.append(order.pop(0))  # rotate: the threads of the call before may still spin
        for i in order:
            calls[i]()  # warm up: reuse pages that the same call freed
            finish()
            taken = timeit.timeit(calls[i], number=number) + timeit.timeit(finish, number=1)
            found[i] = min(found[i], taken / number * 1e6)
    return found


def calls_of(
    function: str, device: str = "cpu", size: tuple[int, int, int] = SMALLEST
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Returns calls of PyTorch's operator and of our function on the same tensors; windows have 2 cells."""
    operator, (n, c, side) = operators()[function], size
    axes = len(operator.axes)
    g, x = (torch.randn(n, c, *[cells] * axes, device=device) for cells in (side // 2, side))
    indices = None
    if operator.kind == "maximum_gradient":
        pool = getattr(torch.nn.functional, function.removesuffix("_backward"))
        indices = pool(x, side // 2 if operator.windows == "adaptive" else 2, return_indices=True)[1]
    tensors = (g, x) if indices is None else (g, x, indices)
    quiet = {"check_indices": False} if device == "cuda" and indices is not None else {}
    ours = getattr(pt, function)
    if operator.windows == "adaptive":
        sizes: tuple[int, ...] = ()
        attributes: tuple[Any, ...] = ()
    else:
        sizes = (2,)
        pair, zero, one = [2] * axes, [0] * axes, [1] * axes
        attributes = (pair, pair, zero, *([one, False] if indices is not None else [False, True]))
        attributes += (None,) if function in ("avg_pool2d_backward", "avg_pool3d_backward") else ()
    name, arguments = aten_call(function, g, x, indices, attributes)
    aten = getattr(torch.ops.aten, name).default
    return (lambda: aten(*arguments)), (lambda: ours(*tensors, *sizes, **quiet))


LARGE: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = [
    ("avg_pool2d_backward", (32, 64, 112, 112), (56, 56), (3, 2, 1)),
    ("avg_pool2d_backward", (32, 256, 56, 56), (28, 28), (2, 2, 0)),
    ("avg_pool2d_backward", (32, 2048, 7, 7), (1, 1), (7, 7, 0)),
    ("avg_pool2d_backward", (16, 192, 35, 35), (35, 35), (3, 1, 1)),
    ("adaptive_avg_pool3d_backward", (4, 64, 16, 56, 56), (4, 7, 7), ()),
    ("adaptive_avg_pool3d_backward", (4, 64, 16, 56, 56), (5, 9, 9), ()),
    ("adaptive_max_pool2d_backward", (32, 256, 56, 56), (7, 7), ()),
    ("adaptive_max_pool2d_backward", (16, 64, 112, 112), (50, 50), ()),
    ("adaptive_max_pool3d_backward", (4, 64, 16, 56, 56), (5, 9, 9), ()),
]


def gains(
    function: str, shape: tuple[int, ...], plane: tuple[int, ...], sizes: tuple[int, ...]
) -> list[float]:
    """Returns PyTorch's time ÷ ours in float32, for tensors and for arrays."""
    g, x = torch.randn(*shape[:2], *plane), torch.randn(shape)
    rest: tuple[Any, ...] = sizes
    aten_rest: tuple[Any, ...] = (*([size, size] for size in sizes), False, True, None) if sizes else ()
    if operators()[function].kind == "maximum_gradient":
        pool = getattr(torch.nn.functional, function.removesuffix("_backward"))
        rest = aten_rest = (pool(x, plane, return_indices=True)[1],)
    aten = getattr(torch.ops.aten, ATEN[function]).default
    arrays = [t.numpy() if isinstance(t, torch.Tensor) else t for t in rest]
    calls: list[Callable[[], Any]] = [
        lambda: aten(g, x, *aten_rest),
        lambda: getattr(pt, function)(g, x, *rest),
        lambda: getattr(pooltide, function)(g.numpy(), shape, *arrays),
    ]
    aten_time, *ours = least(*calls, rounds=30, number=1)
    return [aten_time / time for time in ours]


def large() -> None:
    print(f"{'':60} tensors   arrays   kept")
    for function, shape, plane, sizes in LARGE:
        tensors, numpy = gains(function, shape, plane, sizes)
        name = f"{function} {'×'.join(map(str, shape))}→{'×'.join(map(str, plane))}"
        print(f"{name:60} {tensors:6.1f}× {numpy:7.1f}× {tensors / numpy:5.0%}")


def main(device: str) -> None:
    cuda = device == "cuda"
    sizes = (SMALLEST, SMALL) if cuda else (SMALLEST,)
    timed = partial(least, rounds=20, finish=torch.cuda.synchronize) if cuda else least
    calls = {(f, size): calls_of(f, device, size) for size in sizes for f in gradients()}
    unpatched = {
        what: timed(*both) for what, both in calls.items()
    }  # before any patch: overrides stay after removal
    print(f"{'':45} PyTorch   direct          patched")
    with pt.patch():
        for (function, (n, c, side)), (aten, _) in calls.items():
            plain, direct = unpatched[function, (n, c, side)]
            (patched,) = timed(aten)
            name = f"{function} ({', '.join(map(str, (n, c, *[side] * len(operators()[function].axes))))})"
            ratios = f"{direct:6.1f} µs {direct / plain:4.2f}×  {patched:6.1f} µs {patched / plain:4.2f}×"
            print(f"{name:44} {plain:6.1f} µs {ratios}")


def first_call(function: str) -> float:
    """The seconds of the first call of a function in this process, until its result is there."""
    other = next(name for name in gradients() if operators()[name].kind != operators()[function].kind)
    calls_of(other, "cuda")[1]()  # loads NVRTC and the driver
    call = calls_of(function, "cuda", SMALL)[1]
    torch.cuda.synchronize()
    start = timeit.default_timer()
    call()
    torch.cuda.synchronize()
    return timeit.default_timer() - start


def first() -> None:
    """Measures each gradient in two new processes; they share a cache on disk that is empty at the start."""
    print(f"{'':44} compiled   from the cache")
    for function in gradients():
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", __spec__.name, "first", function]
            given = os.environ | {"POOLTIDE_CACHE": cache}
            runs = [subprocess.check_output(command, env=given) for _ in range(2)]
            cold, warm = map(float, runs)
        print(f"{function:44} {cold * 1e3:5.0f} ms {warm * 1e3:9.1f} ms", flush=True)


if __name__ == "__main__":
    if "first" in sys.argv[1:]:
        first() if len(sys.argv) == 2 else print(first_call(sys.argv[2]))
        sys.exit()
    large() if "large" in sys.argv[1:] else main("cuda" if "cuda" in sys.argv[1:] else "cpu")
