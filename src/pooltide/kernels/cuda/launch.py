"""The GPU backend: from a problem to launches of the kernels, planned once and replayed.

    refuse(problem, layout)                     why it can't compute the problem, or None
    prepare(problem, layout, device)            a PreparedLaunches, which takes tensors and enqueues
    index_errors(device)                        how many indices outside their plane were dropped so far

Nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import torch

from ...problem.problem import Problem
from .choice import LAYOUTS as LAYOUTS
from .choice import kernels as _kernels
from .choice import plan
from .choice import refuse as refuse
from .compiler import compiled
from .driver import Launcher, device_facts
from .nvrtc import library
from .task import Launch

_NONE = 2**63 - 1

current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)


def check_compiler() -> None:
    """Raises NoCompiler with the reason why kernels can't be compiled here."""
    library()


def kernels(problem: Problem, layout: str, device: int) -> list[tuple[str, str | None]]:
    """The kernels up to the chosen one, each with the reason against it; None: it is chosen."""
    return _kernels(problem, layout, device_facts(device))


class PreparedLaunches:
    """The launches of a problem on one device. Tensors are contiguous in the layout; the result has elements.

    `aligned` true: the launches of a gradient need tensors at multiples of 16 bytes. For other addresses a
    second PreparedLaunches is made at the first such call. Kernels of forwards take tensors at any address.
    """

    def __init__(
        self,
        problem: Problem,
        layout: str,
        device: int,
        aligned: bool = True,
        planned: tuple[Launch, ...] | None = None,
    ) -> None:
        """`planned`: the launches of a kernel that the caller chose."""
        self.device, self.gradient = device, problem.gradient
        self.aligned = aligned and problem.gradient
        planned = planned or plan(problem, layout, device_facts(device), aligned)
        self.tables: list[torch.Tensor] = []  # stay on the device as long as the launches
        self.counts = planned[0].counts
        self.errors = record(device).data_ptr() if problem.gradient and problem.index_bytes else 0
        self.unaligned = lru_cache(1)(lambda: PreparedLaunches(problem, layout, device, False))
        self.launches: list[Callable[..., None]] = []
        for launch in planned:
            tables = [torch.from_numpy(table).cuda(device) for table in launch.tables]
            self.tables += tables
            kernel = compiled(launch.source, device)
            follows = launch is not planned[0]
            run = kernel.launcher(launch.grid, launch.block, launch.shared, launch.arguments, follows)
            self.launches.append(_with_tables(run, [table.data_ptr() for table in tables]))

    def __call__(
        self,
        given: torch.Tensor,
        indices: torch.Tensor | None,
        out: torch.Tensor,
        faults: torch.Tensor | None = None,
    ) -> None:
        """Enqueues on the current stream. `given` is grad_output, or the input of a forward.

        `faults` counts indices outside the plane.
        """
        f = self.errors if faults is None else faults.data_ptr()
        grad_output, x = (given.data_ptr(), None) if self.gradient else (None, given.data_ptr())
        self.at(grad_output, x, None if indices is None else indices.data_ptr(), out.data_ptr(), f)

    def at(
        self, grad_output: int | None, input: int | None, indices: int | None, out: int, faults: int = 0
    ) -> None:
        """The same for addresses; None for tensors that the problem does not have."""
        if grad_output is None:
            places = () if indices is None else (indices,)
            return self.launches[0](current_stream(self.device), input, out, *places)
        if self.aligned and (grad_output | out | (indices or 0)) & 15:
            return self.unaligned().at(grad_output, None, indices, out, faults)
        stream = current_stream(self.device)
        if indices is None:
            return self.launches[0](stream, grad_output, out)
        if len(self.launches) == 1:
            return self.launches[0](stream, grad_output, indices, out, faults, 0)
        counts = new_counts(self.counts, self.device)
        for launch in self.launches:
            launch(stream, grad_output, indices, out, faults, counts.data_ptr())
        return None


def _with_tables(run: Launcher, tables: list[int]) -> Callable[..., None]:
    return lambda stream, *addresses: run(stream, *addresses, *tables)


@lru_cache(maxsize=1024)
def prepare(problem: Problem, layout: str, device: int) -> PreparedLaunches:
    """What launches a problem's kernels; raises NoCompiler with the reason why they can't be compiled."""
    return PreparedLaunches(problem, layout, device)


def run(
    problem: Problem,
    layout: str,
    given: torch.Tensor,
    indices: torch.Tensor | None,
    out: torch.Tensor,
    faults: torch.Tensor | None = None,
) -> None:
    """Writes every cell of `out`, and a maximum's `indices`. `given` is grad_output, or a forward's input.

    Tensors are 5-D (N, C, D, H, W), dense in `layout`, on one GPU.
    """
    if out.numel() == 0:
        return
    if given.numel() == 0:
        out.zero_()
        return
    with torch.cuda.device(out.device):
        prepare(problem, layout, out.get_device())(given, indices, out, faults)


def new_counts(count: int, device: int) -> torch.Tensor:
    """What the first of two launches leaves for the second (two_passes.h)."""
    return torch.empty(count, dtype=torch.int32, device=torch.device("cuda", device))


def new_record(device: torch.device | int) -> torch.Tensor:
    """(how many, position of the first) indices outside their plane: none yet."""
    return torch.tensor([0, _NONE], dtype=torch.int64, device=device)


@cache
def record(device: int) -> torch.Tensor:
    return new_record(torch.device("cuda", device))


def index_errors(device: int, clear: bool = False) -> tuple[int, int | None]:
    """How many indices outside their plane were dropped on the device, and where the first one was.

    The place is flat over (N, C, Do, Ho, Wo), the smallest of all calls since the record was cleared.
    This waits for the device.
    """
    kept = record(device)
    count, position = (int(value) for value in kept.tolist())
    if clear:
        kept.copy_(new_record(torch.device("cpu")))
    return count, None if position == _NONE else position
