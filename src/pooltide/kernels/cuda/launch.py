"""The GPU backend: from a problem to launches of the Triton kernels, planned once and replayed.

    run(problem, layout, grad_output, indices, out, faults)    enqueues on the tensors' current stream
    index_errors(device)                                       what the indexed kernels met so far

A plan is the kernels, their grids and every argument but the tensors' addresses. It is kept per
(problem, layout, device, alignment), with the compiled kernels, so that a call is a launch. Nothing waits
for the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import prod

import torch

from ...problem.problem import Problem
from .driver import Launcher
from .plan import Launch, compact, current_stream, plan

LAYOUTS = frozenset({"planes", "channels_last"})
_NONE = 2**63 - 1


def refuse(problem: Problem, layout: str = "planes") -> str | None:
    limit = 2**30
    inner = problem.batch[1] if layout == "channels_last" else 1
    if max(prod(problem.input_plane), prod(problem.output_plane)) * inner > limit:
        return f"{'an image' if inner > 1 else 'a plane'} has more than {limit} elements"
    if problem.rounding != "keep":
        return f"it does not round gradOutput to {problem.rounding}"
    return None


def run(
    problem: Problem,
    layout: str,
    grad_output: torch.Tensor,
    indices: torch.Tensor | None,
    out: torch.Tensor,
    faults: torch.Tensor | None = None,
) -> None:
    """Write every cell of `out`. Tensors are 5-D (N, C, D, H, W), dense in `layout`, on one GPU.

    `faults` is what indices outside the plane are counted in, by default the device's own record.
    """
    if problem.cells == 0:
        return None
    if grad_output.numel() == 0:
        out.zero_()
        return None
    device = out.get_device()
    if device >= 0 and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return run(problem, layout, grad_output, indices, out, faults)
    return prepare(problem, layout, device)(grad_output, indices, out, faults)


@dataclass(slots=True)
class Ready:
    """A problem's launches on one device, by the alignment of the tensors."""

    problem: Problem
    layout: str
    device: int
    plans: dict[tuple[bool, ...], tuple[Launch, ...]] = field(default_factory=dict)
    quick: Launcher | None = None  # the one launch of it where tensors are aligned
    errors: int = 0  # address of the device's record

    def __call__(
        self,
        grad_output: torch.Tensor,
        indices: torch.Tensor | None,
        out: torch.Tensor,
        faults: torch.Tensor | None = None,
    ) -> None:
        if self.quick is not None:
            i = None if indices is None else indices.data_ptr()
            f = self.errors if faults is None else faults.data_ptr()
            if self.at(grad_output.data_ptr(), i, out.data_ptr(), f):
                return
        self._by_alignment(grad_output, indices, out, faults)

    def at(self, g: int, i: int | None, o: int, f: int) -> bool:
        """Launch at these addresses; False where that is not one launch that was made before."""
        quick = self.quick
        if quick is None or (g | o | (i or 0)) & 15:
            return False
        if i is None:
            quick(current_stream(self.device), g, o)
        else:
            quick(current_stream(self.device), g, i, o, f, f)
        return True

    def _by_alignment(
        self,
        grad_output: torch.Tensor,
        indices: torch.Tensor | None,
        out: torch.Tensor,
        faults: torch.Tensor | None,
    ) -> None:
        tensors = (grad_output, out) if indices is None else (grad_output, indices, out)
        aligned = tuple([tensor.data_ptr() % 16 == 0 for tensor in tensors])
        if (launches := self.plans.get(aligned)) is None:
            launches = self.plans[aligned] = plan(self.problem, self.layout, self.device)
        if indices is not None:
            faults = record(self.device) if faults is None else faults
            flags = faults
            if launches[0].flags:
                flags = torch.empty(launches[0].flags, dtype=torch.int32, device=out.device)
            tensors = (*tensors, faults, flags)
        for launch in launches:
            launch(self.device, tensors)
        if len(launches) == 1 and all(aligned):
            self.errors = 0 if indices is None else record(self.device).data_ptr()
            self.quick = launches[0].replay


@lru_cache(maxsize=1024)
def prepare(problem: Problem, layout: str, device: int) -> Ready:
    """What `run` calls when its tensors are on the current device and hold elements."""
    return Ready(problem, layout, device)


def offsets_from(problem: Problem, layout: str, indices: torch.Tensor) -> torch.Tensor:
    """The offsets that `problem` reads, from indices that lie in `layout`, each in its window."""
    device = indices.get_device()
    if device >= 0 and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return offsets_from(problem, layout, indices)
    found = torch.empty_like(indices, dtype=torch.uint8)
    if indices.numel():
        aligned = indices.data_ptr() % 16 == 0 and found.data_ptr() % 16 == 0
        _compacting(problem, layout, device, aligned)(device, (indices, found))
    return found


@lru_cache(maxsize=1024)
def _compacting(problem: Problem, layout: str, device: int, aligned: bool) -> Launch:
    return compact(problem, layout, device)


def new_record(device: torch.device | int) -> torch.Tensor:
    """(how many, position of the first) indices outside their plane: none yet."""
    where = device if isinstance(device, torch.device) or device >= 0 else "cpu"
    return torch.tensor([0, _NONE], dtype=torch.int64, device=where)


@cache
def record(device: int) -> torch.Tensor:
    return new_record(device)


def index_errors(device: int, clear: bool = False) -> tuple[int, int | None]:
    """How many indices outside their plane were dropped on the device, and where the first one was.

    The place is flat over (N, C, Do, Ho, Wo), the smallest of all calls since the record was cleared.
    This waits for the device.
    """
    kept = record(device)
    count, position = (int(value) for value in kept.tolist())
    if clear:
        kept.copy_(new_record(-1))
    return count, None if position == _NONE else position
