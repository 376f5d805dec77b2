"""Whether PyTorch's pools are deterministic: the gradients of pools, and max unpools, computed many times.

`outcomes` runs each of them under torch.use_deterministic_algorithms(True) and compares the results bit for
bit. The command `pooltide determinism` prints it, without the patch and with it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from .aten import Fallback

RUNS = 20
SAME, DIFFERS, RAISES = "the same every time", "silently differs", "raises"
_PLANE, _OUTPUTS = (11, 29, 53), (5, 13, 24)  # windows overlap, so that the order of additions shows

Run = Callable[[], torch.Tensor]


def outcomes(device: str) -> dict[str, str]:
    """By name of the computation, what 20 runs of it gave: SAME, DIFFERS or RAISES."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Fallback)  # nothing may be left to PyTorch
            return {name: _outcome(run) for name, run in _computations(device).items()}
    finally:
        torch.use_deterministic_algorithms(before)


def _outcome(run: Run) -> str:
    try:
        first, *others = (run() for _ in range(RUNS))
    except RuntimeError as refusal:
        if "deterministic" not in str(refusal):
            raise
        return RAISES
    return SAME if all(torch.equal(first, other) for other in others) else DIFFERS


def _computations(device: str) -> dict[str, Run]:
    random = torch.Generator().manual_seed(5)
    runs: dict[str, Run] = {}
    kinds = {"avg_pool": False, "adaptive_avg_pool": True, "max_pool": False, "adaptive_max_pool": True}
    for kind, adaptive in kinds.items():
        for axes in (1, 2, 3):
            name = f"{kind}{axes}d"
            sizes: Any = (_OUTPUTS[3 - axes :],) if adaptive else (3, 1)
            runs[f"gradient of {name}"] = _gradient(getattr(F, name), sizes, _input(axes, device, random))
    for axes in (1, 2, 3):
        pool, unpool = getattr(F, f"max_pool{axes}d"), getattr(F, f"max_unpool{axes}d")
        maxima, indices = pool(_input(axes, device, random), 3, 2, return_indices=True)
        runs[f"max_unpool{axes}d"] = partial(unpool, maxima, indices, 3, 2)
    return runs


def _input(axes: int, device: str, random: torch.Generator) -> torch.Tensor:
    return torch.randn(4, 7, *_PLANE[3 - axes :], generator=random).to(device)


def _gradient(pool: Callable[..., torch.Tensor], sizes: Any, x: torch.Tensor) -> Run:
    """Draws the gradient of the output once; each run computes the gradient of the input."""
    x.requires_grad_()
    y = pool(x, *sizes)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(6)).to(x.device)
    return lambda: torch.autograd.grad(y, x, g, retain_graph=True)[0]
