"""Times the forwards and PyTorch's forwards in turns, and prints a table of medians.

    python tools/measure_forwards.py [ROUNDS]

A case is timed only after its result was compared with PyTorch's: equal bits, or near results where PyTorch
sums in another order or in half precision. A pause before each call lets the threads of the call before
stop spinning. Run this on an idle machine.
"""

from __future__ import annotations

import platform
import statistics
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

import pooltide
from pooltide import _native
from pooltide.cli.contest import seconds
from pooltide.cli.entries import spread

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("avg_pool2d", (32, 64, 112, 112), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("avg_pool2d", (32, 256, 56, 56), {"kernel_size": 2, "stride": 2}),
    ("avg_pool2d", (32, 2048, 7, 7), {"kernel_size": 7}),
    ("avg_pool2d", (16, 192, 35, 35), {"kernel_size": 3, "stride": 1, "padding": 1}),
    ("adaptive_avg_pool3d", (4, 64, 16, 56, 56), {"output_size": (4, 7, 7)}),
    ("adaptive_avg_pool3d", (4, 64, 16, 56, 56), {"output_size": (5, 9, 9)}),
    ("adaptive_avg_pool3d", (2, 32, 32, 64, 64), {"output_size": (8, 16, 16)}),
    ("adaptive_max_pool2d", (32, 256, 56, 56), {"output_size": (7, 7), "return_indices": True}),
    ("adaptive_max_pool2d", (16, 64, 112, 112), {"output_size": (50, 50), "return_indices": True}),
    ("adaptive_max_pool3d", (4, 64, 16, 56, 56), {"output_size": (5, 9, 9), "return_indices": True}),
    ("max_pool2d", (32, 64, 112, 112), {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True}),
    ("max_pool2d", (32, 64, 112, 112), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("adaptive_avg_pool2d", (32, 2048, 7, 7), {"output_size": 1}),
    ("avg_pool2d", (1, 3, 1080, 1920), {"kernel_size": 3, "stride": 2, "padding": 1}),
]


def array(tensor: torch.Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def agrees(name: str, dtype: str, arguments: dict[str, Any], ours: Any, theirs: Any) -> bool:
    if isinstance(ours, tuple):
        return all(np.array_equal(a, array(b)) for a, b in zip(ours, theirs, strict=True))
    if arguments.get("output_size") == 1 or (name == "adaptive_avg_pool3d" and dtype != "float32"):
        return np.allclose(ours.astype(np.float64), theirs.double().numpy(), rtol=0.02, atol=0.02)
    return np.array_equal(ours, array(theirs))


def row(name: str, shape: tuple[int, ...], arguments: dict[str, Any], dtype: str, rounds: int) -> str:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(DTYPES[dtype])
    x = array(tensor)
    ours, theirs = getattr(pooltide, name), getattr(F, name)
    out = ours(x, **arguments)
    if not agrees(name, dtype, arguments, out, theirs(tensor, **arguments)):
        raise SystemExit(f"{name} {shape} {arguments} {dtype}: the result is wrong")
    contestants: list[Callable[[], object]] = [
        lambda: theirs(tensor, **arguments),
        lambda: ours(x, **arguments, out=out),
        lambda: ours(x, **arguments),
    ]
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds):
        for taken, run in zip(times, contestants, strict=True):
            taken.append(seconds(run))
    torch_s, out_s, fresh_s = map(statistics.median, times)
    text = ", ".join(f"{key}={value}" for key, value in arguments.items())
    cells = [f"`{name}`", str(shape), text, dtype, f"{torch_s * 1e3:.3g}"]
    cells += [
        f"{out_s * 1e3:.3g} ±{spread(times[1]):.0%}",
        f"{torch_s / out_s:.2f}",
        f"{torch_s / fresh_s:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(pooltide.get_num_threads())
    threads, isa = pooltide.get_num_threads(), _native.instruction_set()
    print(f"{rounds} rounds, {threads} threads, {isa}, PyTorch {torch.__version__}, {platform.machine()}\n")
    titles = ["forward", "input", "arguments", "dtype", "torch ms", "ours, out= ms"]
    titles += ["torch ÷ ours, out=", "torch ÷ ours, fresh"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for name, shape, arguments in CASES:
        for dtype in DTYPES:
            print(row(name, shape, arguments, dtype, rounds), flush=True)


if __name__ == "__main__":
    main()
