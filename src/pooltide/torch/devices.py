"""Chooses the kernel for a problem on a device.

`choose` takes a device, a gradient's problem and the layouts of its tensors, and returns a `ChosenKernel`.
`choose_forward` takes a forward's problem and the one layout of its tensors, and returns a kernel or None.
On the CPU the plan selects the backend: the compiled kernels take addresses, the reference takes the
tensors' memory as NumPy arrays. On CUDA the kernels run that NVRTC, a library of PyTorch's, compiles.
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
from ..kernels.cuda.driver import NoCompiler
from ..kernels.plan import NoBackend, arrange, execute, make_plan, roles, shortcut
from ..kernels.threads import get_num_threads
from ..problem.problem import Problem
from .tensors import address, as_numpy, as_volume

# Takes the number of axes, grad_output, indices, out and check_indices: whether to wait for a GPU to find
# indices outside their plane. Returns the first such index, or None.
Run = Callable[[int, torch.Tensor, torch.Tensor | None, torch.Tensor, bool], IndexFault | None]


# Takes addresses: grad_output, None, indices, out; and the number of threads. Returns None for success, a
# tuple for an index outside its plane, and NotImplemented for a misaligned address.
Kernel = Callable[[int, None, int | None, int, int], tuple[int, int, int] | NotImplementedType | None]


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    layout: str
    copied: tuple[str, ...]
    run: Run
    kernel: Kernel | None = None
    tables: Any = None  # what owns the memory of the kernel, with its nbytes
    # Returns the kernel that `shortcuts` may call, or None. A GPU's kernel does not check indices. It returns
    # _ELSEWHERE, a sentinel, if the caller must retry through `run`.
    shortcut: Callable[[], Kernel | None] = lambda: None


def num_threads() -> int:
    """Returns how many threads a kernel for tensors may use; negative, as they are PyTorch's (team.py)."""
    return -min(get_num_threads(), torch.get_num_threads())


def choose(device: torch.device, problem: Problem, layouts: tuple[str, ...]) -> ChosenKernel:
    """Returns the kernel for a problem whose tensors have these layouts; raises NoBackend with the reason."""
    if device.type == "meta":
        return ChosenKernel("planes", (), lambda *_: None)
    return (_on_cpu if device.type == "cpu" else _on_cuda)(device, problem, layouts)


def _on_cpu(device: torch.device, problem: Problem, layouts: tuple[str, ...]) -> ChosenKernel:
    plan = make_plan(problem, layouts)
    if plan.backend != "cpu":
        return ChosenKernel(plan.layout, (), lambda axes, *args: execute(plan, _volumes(axes, *args[:3])))
    prepared = cpu.prepare(problem, plan.layout)
    kernel = prepared.run

    def run(
        axes: int,
        grad_output: torch.Tensor,
        indices: torch.Tensor | None,
        out: torch.Tensor,
        check_indices: bool,
    ) -> IndexFault | None:
        where = None if indices is None else address(indices)
        fault = kernel(address(grad_output), None, where, out.data_ptr(), num_threads())
        assert fault is None or isinstance(fault, tuple), "the tensors are aligned and disjoint"
        return None if fault is None else IndexFault(*fault)

    return ChosenKernel(plan.layout, plan.copied, run, kernel, prepared, lambda: kernel)


def _volumes(axes: int, grad_output: torch.Tensor, indices: torch.Tensor | None, out: torch.Tensor) -> Arrays:
    tensors = (grad_output, None, indices, out)
    return Arrays(*(None if t is None else as_numpy(as_volume(t, axes)) for t in tensors))


@cache
def _cuda() -> ModuleType | str:
    """Returns the module of GPU kernels, or the reason why they can't be compiled here."""
    try:
        found = import_module("pooltide.kernels.cuda.launch")
        found.check_compiler()
    except (ImportError, NoCompiler) as missing:
        return f"there are no CUDA kernels: {missing}"
    return found


def missing(device: torch.device) -> str | None:
    """Returns why a device has no kernels at all; None if it has some."""
    found = _cuda() if device.type == "cuda" else None
    return found if isinstance(found, str) else None


def index_errors(device: torch.device | str | int, *, clear: bool = False) -> tuple[int, int | None]:
    """Returns how many indices outside their plane a device has dropped, and the position of the first.

    The position is flat over grad_output; None if there is none. A GPU drops such indices in backward passes
    and in calls with `check_indices=False`; the CPU raises instead. `clear` resets the count. This waits for
    the device.
    """
    where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    backend = _cuda() if where.type == "cuda" else ""
    if isinstance(backend, str):
        return 0, None
    number = torch.cuda.current_device() if where.index is None else where.index
    found: tuple[int, int | None] = backend.index_errors(number, clear)
    return found


def wait_for_kernels(timeout: float | None = None) -> bool:
    """Waits until the GPU kernels that are compiled in the background are ready, and takes them into use.

    A new problem runs on a slower general kernel until its own kernel is compiled; the bits are the same.
    Call this before a benchmark, or before a CUDA graph is captured: a graph keeps the kernels that it has.
    Returns False if it took longer than `timeout` seconds.
    """
    if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
        raise ValueError(
            f"wait_for_kernels: timeout is {timeout!r}; it must be None or a number of seconds, at least 0."
        )
    backend = _cuda() if torch.version.cuda else ""
    return isinstance(backend, str) or bool(backend.wait_for_kernels(timeout))


def count_index_errors(outside: torch.Tensor) -> None:
    """Adds indices that PyTorch's operators dropped to what `index_errors` returns. Does not wait.

    `outside` says of each index whether it is outside its plane. A CUDA graph does not count: its capture may
    be the first call, and cannot make the record.
    """
    backend = _cuda() if outside.is_cuda else ""
    if isinstance(backend, str) or not outside.numel() or torch.cuda.is_current_stream_capturing():
        return
    kept = backend.record(outside.get_device())
    flags = outside.flatten()
    first = torch.where(flags.any(), flags.byte().argmax(), torch.iinfo(torch.int64).max)
    kept.copy_(torch.stack([kept[0] + flags.sum(), torch.minimum(kept[1], first)]))


def _on_cuda(device: torch.device, problem: Problem, layouts: tuple[str, ...]) -> ChosenKernel:
    backend = _cuda()
    if isinstance(backend, str):
        raise NoBackend(backend)
    layout, copied = arrange(problem, layouts, backend.LAYOUTS)
    if reason := backend.refuse(problem, layout):
        raise NoBackend(reason)
    number = _current_device() if device.index is None else device.index
    if problem.cells == 0 or prod(problem.output_plane) == 0:
        return ChosenKernel(layout, copied, _fill_with_zeros)
    try:
        prepared = backend.prepare(problem, layout, number)
    except NoCompiler as missing:
        raise NoBackend(str(missing)) from None
    run, kernel = _checked_run(backend, prepared, number), _DeviceKernel(prepared, number).gradient
    return ChosenKernel(layout, copied, run, None, prepared, lambda: kernel)


@dataclass(frozen=True, slots=True)
class _DeviceKernel:
    """The kernels of a prepared problem on a GPU. They take addresses, and do not check indices."""

    prepared: Any
    number: int  # of the device

    @property
    def nbytes(self) -> int:
        size: int = self.prepared.nbytes
        return size

    def gradient(self, grad_output: int, input: None, indices: int | None, out: int, threads: int) -> Any:
        if self.number != _current_device():
            return _ELSEWHERE
        self.prepared.at(grad_output, None, indices, out, self.prepared.errors)
        return None

    def forward(self, grad_output: None, input: int, indices: int | None, out: int, threads: int) -> None:
        if self.number == _current_device():
            self.prepared.at(None, input, indices, out)
        else:
            with torch.cuda.device(self.number):
                self.prepared.at(None, input, indices, out)


def _checked_run(backend: ModuleType, prepared: Any, number: int) -> Run:
    """Returns the function that runs a prepared gradient on the device, and waits for faults if it must."""
    clean: list[torch.Tensor] = []  # fault records for reuse: no launch has written to them

    def launch(*addresses: int | None) -> None:
        with torch.cuda.device(number):
            prepared.at(*addresses)

    def run(
        axes: int,
        grad_output: torch.Tensor,
        indices: torch.Tensor | None,
        out: torch.Tensor,
        check_indices: bool,
    ) -> IndexFault | None:
        start = prepared.at if number == _current_device() else launch
        where = None if indices is None else address(indices)
        places = address(grad_output), None, where, out.data_ptr()
        if indices is None or not check_indices or torch.cuda.is_current_stream_capturing():
            start(*places, prepared.errors)
            return None
        faults = clean.pop() if clean else backend.new_record(out.device)
        start(*places, faults.data_ptr())
        count, position = faults.tolist()
        if count:
            return IndexFault(count, position, int(indices.flatten()[position]))
        clean.append(faults)
        return None

    return run


def choose_forward(device: torch.device, problem: Problem, layout: str) -> Callable[..., Any] | None:
    """Returns the kernel of a forward whose tensors all have this layout; None if PyTorch must compute it.

    The kernel takes addresses (None, input, indices or None, out) and the number of threads.
    """
    return (_forward_on_cpu if device.type == "cpu" else _forward_on_cuda)(device, problem, layout)


def _forward_on_cpu(device: torch.device, problem: Problem, layout: str) -> Callable[..., Any] | None:
    return shortcut(make_plan(problem, (layout,) * len(roles(problem))))


def _forward_on_cuda(device: torch.device, problem: Problem, layout: str) -> Callable[..., Any] | None:
    backend = _cuda()
    if isinstance(backend, str) or backend.refuse(problem, layout):
        return None
    number = _current_device() if device.index is None else device.index
    try:
        prepared = backend.prepare(problem, layout, number)
    except NoCompiler:
        return None
    return _DeviceKernel(prepared, number).forward


def _fill_with_zeros(
    axes: int, grad_output: torch.Tensor, indices: torch.Tensor | None, out: torch.Tensor, check_indices: bool
) -> None:
    out.zero_()


_ELSEWHERE = (0, 0, 0)
# torch.cuda.current_device without its check that CUDA exists
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
