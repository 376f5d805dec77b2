"""Who computes on which device: the one place where a device's kernels are found.

On the CPU it is the plan's backend: the compiled kernels take addresses, any other takes the tensors'
memory as NumPy arrays. On CUDA it is the Triton kernels, where the package and a Triton exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import prod
from types import ModuleType, NotImplementedType
from typing import Any

import torch

from ..kernels import Arrays, IndexFault, cpu
from ..kernels.plan import NoBackend, arrange, execute, make_plan
from ..kernels.threads import get_num_threads
from ..problem.problem import Problem
from .tensors import as_numpy, as_volume

# Of the number of axes, grad_output, indices, out, and whether indices are the forward's own: then a GPU
# need not be waited for.
Run = Callable[[int, torch.Tensor, torch.Tensor | None, torch.Tensor, bool], IndexFault | None]


# NotImplemented where an address is misaligned.
Kernel = Callable[[int, None, int | None, int, int], tuple[int, int, int] | NotImplementedType | None]


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    layout: str
    copied: tuple[str, ...]
    run: Run
    kernel: Kernel | None = None  # takes addresses: grad_output, None, indices, out; and threads
    # Finds what `shortcuts` may call, None as long as nothing is compiled. A GPU's does not wait to tell of
    # bad indices; it returns a fault, though there is none, where it must be asked in another way.
    shortcut: Callable[[], Kernel | None] = lambda: None


def choose(device: torch.device, problem: Problem, layouts: tuple[str, ...]) -> ChosenKernel:
    """The kernel for a problem whose tensors lie so; raises NoBackend with the reason."""
    if device.type == "meta":
        return ChosenKernel("planes", (), lambda *_: None)
    return (_on_cpu if device.type == "cpu" else _on_cuda)(device, problem, layouts)


def _on_cpu(device: torch.device, problem: Problem, layouts: tuple[str, ...]) -> ChosenKernel:
    plan = make_plan(problem, layouts)
    if plan.backend != "cpu":
        return ChosenKernel(plan.layout, (), lambda axes, *args: execute(plan, _volumes(axes, *args[:3])))
    kernel = cpu.prepare(problem, plan.layout).run

    def run(
        axes: int,
        grad_output: torch.Tensor,
        indices: torch.Tensor | None,
        out: torch.Tensor,
        check_indices: bool,
    ) -> IndexFault | None:
        threads = min(get_num_threads(), torch.get_num_threads())
        where = None if indices is None else indices.data_ptr()
        fault = kernel(grad_output.data_ptr(), None, where, out.data_ptr(), threads)
        assert fault is None or isinstance(fault, tuple), "the tensors are aligned and disjoint"
        return None if fault is None else IndexFault(*fault)

    return ChosenKernel(plan.layout, plan.copied, run, kernel, lambda: kernel)


def _volumes(axes: int, grad_output: torch.Tensor, indices: torch.Tensor | None, out: torch.Tensor) -> Arrays:
    tensors = (grad_output, None, indices, out)
    return Arrays(*(None if t is None else as_numpy(as_volume(t, axes)) for t in tensors))


@cache
def _triton() -> ModuleType | str:
    """The GPU kernels, or why there are none."""
    try:
        return import_module("pooltide.kernels.cuda.launch")
    except ImportError as missing:
        return f"there are no CUDA kernels: {missing}"


def missing(device: torch.device) -> str | None:
    """Why there are no kernels for a device at all."""
    found = _triton() if device.type == "cuda" else None
    return found if isinstance(found, str) else None


def index_errors(device: torch.device | str | int, *, clear: bool = False) -> tuple[int, int | None]:
    """How many indices outside their plane were dropped on a device, and where the first one was.

    The place is flat over grad_output. Only what did not raise is counted: backward passes, and calls
    with `check_indices=False`, on a GPU; on the CPU every call raises. This waits for the device.
    """
    where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    backend = _triton() if where.type == "cuda" else ""
    if isinstance(backend, str):
        return 0, None
    number = torch.cuda.current_device() if where.index is None else where.index
    found: tuple[int, int | None] = backend.index_errors(number, clear)
    return found


def offsets_from(problem: Problem, layout: str, indices: torch.Tensor) -> torch.Tensor | None:
    """A GPU's indices as offsets in their windows, or None where it has no kernel for that."""
    backend = _triton() if layout != "strided" else ""
    if isinstance(backend, str) or backend.refuse(problem, layout):
        return None
    found: torch.Tensor = backend.offsets_from(problem, layout, indices)
    return found


def _on_cuda(device: torch.device, problem: Problem, layouts: tuple[str, ...]) -> ChosenKernel:
    backend = _triton()
    if isinstance(backend, str):
        raise NoBackend(backend)
    layout, copied = arrange(problem, layouts, backend.LAYOUTS)
    if reason := backend.refuse(problem, layout):
        raise NoBackend(reason)
    number = -1 if device.index is None else device.index
    prepared = backend.prepare(problem, layout, number)
    idle = problem.cells == 0 or prod(problem.output_plane) == 0
    clean: list[torch.Tensor] = []  # records that have met no fault yet

    def launch(*tensors: torch.Tensor | None) -> None:
        with torch.cuda.device(number):
            prepared(*tensors)

    def run(
        axes: int,
        grad_output: torch.Tensor,
        indices: torch.Tensor | None,
        out: torch.Tensor,
        check_indices: bool,
    ) -> IndexFault | None:
        if idle:
            out.zero_()
            return None
        start = prepared if number == _current_device() else launch
        if indices is None or not check_indices or torch.cuda.is_current_stream_capturing():
            start(grad_output, indices, out)
            return None
        faults = clean.pop() if clean else backend.new_record(out.device)
        start(grad_output, indices, out, faults)
        count, position = faults.tolist()
        if count:
            return IndexFault(count, position, int(indices.flatten()[position]))
        clean.append(faults)
        return None

    def kernel(grad_output: int, input: None, indices: int | None, out: int, threads: int) -> Any:
        there = number == _current_device() and prepared.at(grad_output, indices, out, prepared.errors)
        return None if there else _ELSEWHERE

    return ChosenKernel(layout, copied, run, None, lambda: kernel if prepared.quick is not None else None)


_ELSEWHERE = (0, 0, 0)
# torch.cuda.current_device without the look whether there is a CUDA at all
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
