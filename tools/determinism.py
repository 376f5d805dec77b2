"""Whether the gradients of PyTorch's pools are deterministic, without the patch and with it.

    python tools/determinism.py [cpu|cuda]

Computes each gradient 20 times in float32 under torch.use_deterministic_algorithms(True), compares the
results bit for bit, and prints a Markdown table.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import pooltide.torch as pt
from pooltide.torch.aten_fallback import Fallback

RUNS = 20
PLANE, OUTPUTS = (11, 29, 53), (5, 13, 24)  # windows overlap, so that the order of additions shows


def pools() -> dict[str, tuple[Callable[..., Any], int, Any]]:
    """By name: the function, its axes, and a size (adaptive) or kernel and stride."""
    return {
        f"{kind}{axes}d": (getattr(F, f"{kind}{axes}d"), axes, sizes)
        for kind in ("avg_pool", "adaptive_avg_pool", "max_pool", "adaptive_max_pool")
        for axes in (1, 2, 3)
        for sizes in ((OUTPUTS[3 - axes :],) if kind.startswith("adaptive") else (3, 1),)
    }


def outcome(pool: Callable[..., Any], axes: int, sizes: Any, device: str) -> str:
    random = torch.Generator().manual_seed(5)
    x = torch.randn(4, 7, *PLANE[3 - axes :], generator=random).to(device).requires_grad_()
    y = pool(x, *sizes)
    g = torch.randn(y.shape, generator=random).to(device)
    runs = []
    for _ in range(RUNS):
        try:
            runs.append(torch.autograd.grad(y, x, g, retain_graph=True)[0])
        except RuntimeError as refusal:
            if "deterministic" not in str(refusal):
                raise
            return "raises"
    return "the same every time" if all(torch.equal(r, runs[0]) for r in runs) else "silently differs"


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    torch.use_deterministic_algorithms(True)
    warnings.simplefilter("error", Fallback)  # nothing may be left to PyTorch
    own = {pool: outcome(*how, device) for pool, how in pools().items()}
    with pt.patch():
        ours = {pool: outcome(*how, device) for pool, how in pools().items()}
    print(f"{name}, PyTorch {torch.__version__}, float32, {RUNS} runs\n")
    print("| gradient of | PyTorch | with `patch()` |\n|---|---|---|")
    for pool, found in own.items():
        print(f"| `{pool}` | {found} | {ours[pool]} |")


if __name__ == "__main__":
    main()
