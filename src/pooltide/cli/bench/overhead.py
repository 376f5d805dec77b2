"""Measures the cost of a call on tiny tensors, and the speedup over PyTorch on large ones; prints tables.

    python -m pooltide.torch.overhead
    python -m pooltide.torch.overhead cuda
    python -m pooltide.torch.overhead pools [cuda]
    python -m pooltide.torch.overhead first
    python -m pooltide.torch.overhead large

Each row is a gradient for a (1, 16, 4, 4) tensor (4 or 4×4×4 in 1-D and 3-D) on the CPU: PyTorch's operator
(in 1-D the 2-D operator with height 1), our function, and PyTorch's operator under patch(). The time is the
minimum over many rounds; the calls alternate.
With `cuda`: the same on a GPU, also for (8, 64, 28, 28), without synchronization between the calls.
With `pools`: what pool_overhead.py measures.
With `first`: the first call of a gradient in a new process on a GPU, for (8, 64, 28, 28), if its kernel must
be compiled, and if the kernel is in the cache on disk. Another gradient was called before.
With `large`: PyTorch's time ÷ ours for named shapes, on tensors and in NumPy; each call allocates its result.
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

from ... import torch as pt
from ...acceptance.inputs import arrays
from ...acceptance.notation import Case, parse
from ...operators.catalog import gradients, operators
from ...operators.pages import HOST
from ...torch.aten import aten_call
from . import pool_overhead
from .cpu_gradients import on_arrays, problem_to_time
from .named_shapes import SHAPES
from .pool_overhead import SMALLEST, min_times
from .pytorch_gradients import on_tensors

SMALL = (8, 64, 28)  # N, C, and the length of every axis


def calls_of(
    function: str, device: str = "cpu", size: tuple[int, int, int] = SMALLEST
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Returns calls of PyTorch's operator and of our function on the same tensors; windows have 2 cells."""
    operator, (n, c, length) = operators()[function], size
    axes = len(operator.axes)
    g, x = (torch.randn(n, c, *[cells] * axes, device=device) for cells in (length // 2, length))
    indices = None
    if operator.kind == "maximum_gradient":
        pool = getattr(torch.nn.functional, function.removesuffix("_backward"))
        indices = pool(x, length // 2 if operator.windows == "adaptive" else 2, return_indices=True)[1]
    tensors = (g, x) if indices is None else (g, x, indices)
    options = {"check_indices": False} if device == "cuda" and indices is not None else {}
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
    return (lambda: aten(*arguments)), (lambda: ours(*tensors, *sizes, **options))


LARGE = (
    *("resnet-stem", "densenet-transition", "resnet-head", "inception-branch", "video-disjoint"),
    *("video-overlap", "max-sparse", "max-dense", "max-video"),
)  # named shapes


def gains(case: Case) -> list[float]:
    """Returns PyTorch's time ÷ ours in float32, for tensors and for arrays."""
    data = arrays(case.call(HOST), problem_to_time(case), case.data)
    numpy = on_arrays(case, *data)
    numpy["ours out="]()  # the result that `on_tensors` checks
    tensors = on_tensors(case, *data)
    pytorch_time, *our_times = min_times(
        tensors["torch"], tensors["ours"], numpy["ours"], rounds=30, number=1
    )
    return [pytorch_time / time for time in our_times]


def large() -> None:
    print(f"{'':60} tensors   arrays   kept")
    for case in (parse(SHAPES[name]) for name in LARGE):
        tensors, numpy = gains(case)
        name = f"{case.operator.function} {'×'.join(map(str, case.shape))}→{'×'.join(map(str, case.plane))}"
        print(f"{name:60} {tensors:6.1f}× {numpy:7.1f}× {tensors / numpy:5.0%}")


def main(device: str) -> None:
    cuda = device == "cuda"
    sizes = (SMALLEST, SMALL) if cuda else (SMALLEST,)
    timed = partial(min_times, rounds=20, finish=torch.cuda.synchronize) if cuda else min_times
    calls = {(f, size): calls_of(f, device, size) for size in sizes for f in gradients()}
    unpatched = {key: timed(*both) for key, both in calls.items()}  # before any patch: overrides stay after
    print(f"{'':45} PyTorch   direct          patched")
    with pt.patch():
        for (function, (n, c, length)), (aten, _) in calls.items():
            plain, direct = unpatched[function, (n, c, length)]
            (patched,) = timed(aten)
            name = f"{function} ({', '.join(map(str, (n, c, *[length] * len(operators()[function].axes))))})"
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
            environment = os.environ | {"POOLTIDE_CACHE": cache}
            runs = [subprocess.check_output(command, env=environment) for _ in range(2)]
            cold, warm = map(float, runs)
        print(f"{function:44} {cold * 1e3:5.0f} ms {warm * 1e3:9.1f} ms", flush=True)


if __name__ == "__main__":
    if "first" in sys.argv[1:]:
        first() if len(sys.argv) == 2 else print(first_call(sys.argv[2]))
        sys.exit()
    if "pools" in sys.argv[1:]:
        pool_overhead.run("cuda" if "cuda" in sys.argv[1:] else "cpu")
        sys.exit()
    large() if "large" in sys.argv[1:] else main("cuda" if "cuda" in sys.argv[1:] else "cpu")
