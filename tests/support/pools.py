"""The pools as PyTorch has them, with sizes that are distinct primes: what the torch tests share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import TorchDispatchMode

import pooltide.torch as pt
from geometries import axes_of
from pooltide import _native
from pooltide.torch.dispatch import custom_operators
from pooltide.torch.patching import gradient_overrides

BEFORE_2_11 = TorchVersion(torch.__version__) < "2.11"  # what tests compare with was otherwise there
BEFORE_2_12 = TorchVersion(torch.__version__) < "2.12"
BEFORE_2_13 = TorchVersion(torch.__version__) < "2.13"


@dataclass(frozen=True)
class Pool:
    name: str  # of torch.nn.functional and pooltide.torch.functional
    shape: tuple[int, ...]
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def axes(self) -> int:
        return axes_of(self.name)

    @property
    def gradient(self) -> str:
        """Ours, of the gradient that PyTorch takes; it makes 2-D pools of 1-D ones."""
        return f"{self.name}_backward".replace("1d", "2d")

    @property
    def channels_last(self) -> torch.memory_format:
        return torch.channels_last if self.axes == 2 else torch.channels_last_3d

    def forward(self, x: Tensor, module: Any = F) -> Tensor:
        result: Tensor = getattr(module, self.name)(x, **self.arguments)
        return result

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{k}={v}" for k, v in self.arguments.items())]).replace(" ", "")


POOLS = [  # those that CANN's documents have
    Pool("avg_pool2d", (3, 5, 13, 17), {"kernel_size": (3, 2), "stride": 2, "padding": 1, "ceil_mode": True}),
    Pool("avg_pool2d", (2, 7, 11, 5), {"kernel_size": 3, "padding": 1, "count_include_pad": False}),
    Pool("avg_pool2d", (2, 3, 7, 11), {"kernel_size": 2, "stride": (1, 3), "divisor_override": -5}),
    Pool("adaptive_avg_pool3d", (2, 5, 7, 13, 11), {"output_size": (3, 5, 2)}),
    Pool("adaptive_max_pool2d", (3, 5, 13, 17), {"output_size": (5, 7)}),
    Pool("adaptive_max_pool3d", (2, 3, 7, 13, 11), {"output_size": (3, 5, 2)}),
]

FAMILY = [
    Pool("avg_pool1d", (3, 5, 17), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    Pool("avg_pool3d", (2, 3, 7, 13, 11), {"kernel_size": (3, 2, 5), "stride": 2, "padding": 1, "ceil_mode": True}),
    Pool("avg_pool3d", (2, 3, 5, 7, 11), {"kernel_size": 3, "padding": 1, "count_include_pad": False}),
    Pool("avg_pool3d", (2, 3, 5, 7, 11), {"kernel_size": 2, "stride": (1, 3, 2), "divisor_override": -5}),
    Pool("adaptive_avg_pool1d", (3, 5, 17), {"output_size": 5}),
    Pool("adaptive_avg_pool2d", (3, 5, 13, 17), {"output_size": (5, 7)}),
    Pool("adaptive_max_pool1d", (3, 5, 17), {"output_size": 7}),
    Pool("max_pool1d", (3, 5, 17), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    Pool("max_pool2d", (3, 5, 13, 17), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    Pool("max_pool2d", (3, 5, 13, 17), {"kernel_size": (3, 2), "stride": (1, 3), "dilation": (2, 5)}),
    Pool("max_pool3d", (2, 3, 7, 13, 11), {"kernel_size": (3, 2, 5), "stride": 2, "padding": 1, "dilation": (1, 3, 2)}),
]  # fmt: skip
EVERY = POOLS + FAMILY


def gradient(pool: Callable[[Tensor], Tensor], x: Tensor, rounded: torch.dtype | None = None) -> Tensor:
    """The gradient by autograd, for a random cotangent of x's dtype, or one whose values `rounded` has."""
    x = x.detach().requires_grad_()
    y = pool(x)
    random = torch.Generator().manual_seed(1)
    g = torch.randn(y.shape, generator=random, dtype=torch.float64).to(rounded or y.dtype).to(y.dtype)
    (found,) = torch.autograd.grad(y, x, g)
    return found


def sample(pool: Pool, dtype: torch.dtype = torch.float32) -> Tensor:
    random = torch.Generator().manual_seed(7)
    return torch.randn(pool.shape, generator=random, dtype=torch.float64).to(dtype)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def quiet_patch(forward: bool) -> pt.Patch:
    """A patch without the warning of models compiled before, which other tests may have left."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="patch: models compiled before")
        return pt.patch(forward=forward)


def kept_by(run: Callable[[], Any]) -> list[torch.dtype]:
    """The dtypes of the tensors that autograd saves while `run` runs, without the token, which is empty."""
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        run()
    return [t.dtype for t in kept if t.numel()]


_reached: Callable[[str], Any] = str  # what `watch_patched` tells; str does nothing


def watch_patched(monkeypatch: Any, reached: Callable[[str], Any]) -> None:
    """Tell `reached` of each gradient that a patched operator has from us, by the long way or the short."""
    computed, find = gradient_overrides.computed, gradient_overrides.find

    def watched(function: str, *rest: Any) -> Any:
        if (result := find(function, *rest)) is not None:
            reached(function)
        return result

    monkeypatch.setattr(gradient_overrides, "find", watched)
    monkeypatch.setattr(sys.modules[__name__], "_reached", reached)
    _native.aten_watch(lambda name: _reached(name) if "backward" in name else None)
    monkeypatch.setattr(
        gradient_overrides, "computed", lambda name, *rest: reached(name) or computed(name, *rest)
    )


def watch_computed(monkeypatch: Any, reached: Callable[[str], Any], *modules: Any) -> None:
    """Tell `reached` of each function that `compute` of a module computes; by default, of custom operators."""
    for module in modules or (custom_operators,):
        monkeypatch.setattr(
            module,
            "compute",
            lambda prepared, *rest, real=module.compute: reached(prepared.function) or real(prepared, *rest),
        )


class Dispatched(TorchDispatchMode):
    """A mode that lists the names of the operators that PyTorch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def shifted(tensor: Any, by: int = 1) -> Any:
    """A copy whose address is `by` bytes after a multiple of 16."""
    size = tensor.numel() * tensor.element_size()
    buffer = np.empty(size + 32, np.uint8)
    begin = -buffer.ctypes.data % 16 + by
    copy = torch.from_numpy(buffer[begin : begin + size]).view(tensor.dtype).view(tensor.shape)
    assert copy.data_ptr() % 16 == by
    return copy.copy_(tensor)
