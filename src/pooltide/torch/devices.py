"""Who computes on which device: the one place where a device's kernels are found.

On the CPU it is the plan's backend: the compiled kernels take addresses, any other takes the tensors'
memory as NumPy arrays. On CUDA it is the Triton kernels, where the package and a Triton exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..backends import IndexFault, cpu
from ..plan import NoBackend, execute, make_plan
from ..problem import Problem
from ..threads import get_num_threads
from .tensors import as_numpy, as_volume

if TYPE_CHECKING:
    from .recipes import Recipe

Run = Callable[["Recipe", torch.Tensor, torch.Tensor | None, torch.Tensor], IndexFault | None]


Kernel = Callable[[int, int | None, int, int], tuple[int, int, int] | None]


@dataclass(frozen=True, slots=True)
class Chosen:
    layout: str
    copied: tuple[str, ...]
    run: Run
    kernel: Kernel | None = None  # where it takes addresses: of grad_output, indices, out; and threads


def choose(device: torch.device, problem: Problem, layouts: tuple[str, ...]) -> Chosen:
    """The kernel for a problem whose tensors lie so; raises NoBackend with the reason."""
    if device.type == "meta":
        return Chosen("planes", (), lambda *_: None)
    return _on_cpu(problem, layouts) if device.type == "cpu" else _on_cuda(problem, layouts)


def _on_cpu(problem: Problem, layouts: tuple[str, ...]) -> Chosen:
    plan = make_plan(problem, layouts)
    if plan.backend != "cpu":
        return Chosen(plan.layout, (), lambda recipe, *tensors: execute(plan, *_volumes(recipe, *tensors)))
    kernel = cpu.prepare(problem, plan.layout).run

    def run(
        recipe: Recipe, grad_output: torch.Tensor, indices: torch.Tensor | None, out: torch.Tensor
    ) -> IndexFault | None:
        threads = min(get_num_threads(), torch.get_num_threads())
        where = None if indices is None else indices.data_ptr()
        fault = kernel(grad_output.data_ptr(), where, out.data_ptr(), threads)
        return None if fault is None else IndexFault(*fault)

    return Chosen(plan.layout, plan.copied, run, kernel)


def _volumes(recipe: Recipe, *tensors: torch.Tensor | None) -> Any:
    return [None if t is None else as_numpy(as_volume(t, recipe.axes)) for t in tensors]


def missing(device: torch.device) -> str | None:
    """Why there are no kernels for a device at all."""
    return None if device.type == "cpu" else "this version has no CUDA kernels"


def _on_cuda(problem: Problem, layouts: tuple[str, ...]) -> Chosen:
    raise NoBackend("this version of pooltide has no CUDA kernels")
