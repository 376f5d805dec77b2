"""The GPU backend: from a problem to launches of the kernels, planned once and replayed.

    LAYOUTS, refuse, prepare, scratch, run      as of every backend (kernels/__init__.py); `run` takes tensors
    wait_for_kernels()                          until all kernels of these problems are compiled
    index_errors(device)                        how many indices outside their plane were dropped so far

Nothing waits for the device, and a call does not wait for the compiler.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from types import NotImplementedType
from weakref import WeakSet

import numpy as np
import torch

from ... import _native
from ...cache import cached
from ...problem.problem import Problem
from .. import Arrays
from . import tuned
from .choice import LAYOUTS as LAYOUTS
from .choice import kernels as _kernels
from .choice import refuse as refuse
from .general.general import general
from .kernel_tables import Array, cdiv
from .runtime import background
from .runtime.compiler import compiled, ready
from .runtime.driver import Launcher, device_facts
from .runtime.nvrtc import find_library
from .task import Launch, Task

_NONE = 2**63 - 1

# CUDA graphs have the addresses of the tables of these launches, and may be replayed at any time.
_captured: list[_Loaded] = []
_is_capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
# torch.cuda.current_device without its check that CUDA exists
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)


def check_compiler() -> None:
    """Raises NoCompiler if NVRTC is not here. It is loaded later, by a thread that compiles."""
    find_library()


def scratch(problem: Problem) -> int:
    """Returns 0: PyTorch allocates what a kernel needs."""
    return 0


def kernels(problem: Problem, layout: str, device: int) -> list[tuple[str, str | None]]:
    """The kernels that were considered, each with the reason against it; None: it is chosen."""
    return _kernels(problem, layout, device_facts(device))


@dataclass(slots=True, eq=False)
class _Loaded:
    """The launches of one kernel, loaded on a device."""

    first: Launcher
    second: Launcher | None
    counts: torch.Tensor | None  # what the first leaves for the second resembles it
    aligned: bool  # tensors must begin at multiples of 16 bytes
    tables: tuple[torch.Tensor, ...]  # stay on the device as long as the launches
    streams: set[int]  # that the allocator knows to use the tables

    def keep_for(self, stream: int, device: int) -> None:
        """Keeps the tables as long as the stream reads them. The cache may drop these launches before.

        So the allocator must know each stream, and a graph that captures the launches keeps them for good.
        The default stream, 0, cannot be captured.
        """
        if stream not in self.streams:
            self.streams.add(stream)
            for table in self.tables:
                table.record_stream(torch.cuda.ExternalStream(stream, device))  # type: ignore[no-untyped-call]
        if self.tables and stream and _is_capturing() and self not in _captured:
            _captured.append(self)


def _load(planned: tuple[Launch, ...], device: int, aligned: bool) -> _Loaded:
    launches, kept = [], []
    for launch in planned:
        tables, addresses = _on_device(launch.tables, device)
        kept += tables
        kernel = compiled(launch.source, device)
        sizes, follows = (launch.grid, launch.block, launch.shared), launch is not planned[0]
        launches.append(kernel.launcher(*sizes, launch.arguments, follows, addresses))
    first, *more = launches
    second, counts = more[0] if more else None, None
    if more:
        counts = new_counts(planned[0].counts, device)
        counts.untyped_storage().resize_(0)  # only its metadata count
    return _Loaded(first, second, counts, aligned, tuple(kept), {current_stream(device)})


def _on_device(tables: tuple[Array, ...], device: int) -> tuple[list[torch.Tensor], list[int]]:
    """One tensor with all tables, or none, and where each begins: copies of many would take longer."""
    begins = [0, *accumulate(cdiv(table.nbytes, 16) * 16 for table in tables)]
    if not begins[-1]:
        return [], [0] * len(tables)
    memory = np.zeros(begins[-1], np.uint8)
    for begin, table in zip(begins, tables, strict=False):
        memory[begin : begin + table.nbytes] = table.reshape(-1).view(np.uint8)
    kept = torch.from_numpy(memory).cuda(device)
    return [kept], [kept.data_ptr() + begin for begin in begins[:-1]]


class PreparedLaunches(_native.Launches):
    """The launches of a problem on one device. Tensors are contiguous in the layout; the result has elements.

    `run` is a `Kernel` (kernels/__init__.py) in compiled code; `enqueue` makes the launches that it does not.

    If the problem's kernel is not compiled yet, or a graph is captured, the problem's general kernel computes
    it, with the same bits and without tables, until a thread of background.py has compiled the right one.
    Kernels of gradients may need tensors at multiples of 16 bytes. For other addresses a second
    PreparedLaunches is made at the first such call. Kernels of forwards take tensors at any address.
    """

    def __init__(
        self,
        problem: Problem,
        layout: str,
        device: int,
        aligned: bool = True,
        planned: tuple[Launch, ...] | None = None,
    ) -> None:
        """`planned`: the launches of a kernel that the caller chose. They are compiled at once."""
        self.device, self.gradient = device, problem.gradient
        self.clean: list[torch.Tensor] = []  # fault records for reuse: no launch has written to them
        errors = record(device).data_ptr() if problem.gradient and problem.index_bytes else 0
        sizes = problem.dtype.itemsize, problem.index_bytes or 1
        self.begin(current_device, current_stream, torch.empty_like, device, problem.gradient, *sizes, errors)
        self.unaligned: Callable[[], PreparedLaunches] = lambda: prepare(problem, layout, device, False)
        self.task = task = Task(problem, layout, device_facts(device), aligned)
        self.planned = planned or tuned.plan(task)
        self.alignment = aligned and problem.gradient
        self.nbytes = sum(table.nbytes for x in self.planned for table in x.tables)
        self.jobs: tuple[background.Job, ...] = ()  # the kernels that are being compiled
        if planned is None:
            _prepared.add(self)
        capturing = _is_capturing()  # then tables cannot be copied to the device
        if planned is None and (capturing or compiles_in_background()):
            sources = dict.fromkeys(x.source for x in self.planned)
            later = [source for source in sources if capturing or ready(source, device) is None]
            instead = general(task) if later else ""
            if not isinstance(instead, str):
                self.loaded = _load(instead, device, False)
                self.jobs = tuple(background.start(source, device) for source in later)
                self._launch_directly()
                return
        self._take()
        self._launch_directly()

    def _take(self) -> None:
        """Loads the problem's own kernel, unless another thread has."""
        if planned := self.planned:
            self.loaded = _load(planned, self.device, self.alignment)
            self.planned = ()  # its tables are on the device now

    def _launch_directly(self) -> None:
        """Lets `run` launch what is loaded, except while a kernel is compiled."""
        loaded = self.loaded
        default, others = not loaded.tables or 0 in loaded.streams, not loaded.tables
        if self.jobs:
            default = others = False
        held = loaded.first, loaded.second, loaded.counts, loaded.tables
        self.use(*held, loaded.aligned, default, others)

    def improve(self) -> None:
        """Takes the problem's own kernel once it is compiled, except in a capture: it copies tables."""
        if not all(job.done for job in self.jobs) or _is_capturing():
            return
        if reason := next((job.reason for job in self.jobs if job.reason), None):
            warn_once(reason)
        else:
            self._take()
        self.jobs = ()
        self._launch_directly()

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
        grad_output, x = (given.data_ptr(), None) if self.gradient else (None, given.data_ptr())
        places, f = (None if tensor is None else tensor.data_ptr() for tensor in (indices, faults))
        done = self.run(grad_output, x, places, out.data_ptr(), 0, f)
        assert done is None, "elements of tensors are aligned"

    def run_checked(self, grad_output: int, indices: int, out: int) -> tuple[int, int] | NotImplementedType:
        """As `run`; waits, and returns how many indices are outside their plane, and where the first is."""
        record = self.clean.pop() if self.clean else new_record(self.device)
        if self.run(grad_output, None, indices, out, 0, record.data_ptr()) is NotImplemented:
            return NotImplemented  # type: ignore[no-any-return]
        count, position = record.tolist()
        if not count:
            self.clean.append(record)
        return count, position

    def enqueue(self, source: int, indices: int, out: int, faults: int) -> None:
        """Enqueues a call of `run` that does not launch what is loaded at once. Takes addresses."""
        if self.device != current_device():
            with torch.cuda.device(self.device):
                return self.enqueue(source, indices, out, faults)
        if self.jobs:
            self.improve()
        loaded = self.loaded  # another thread may exchange it
        if loaded.aligned and (source | indices | out) & 15:
            self.unaligned().run(source, None, indices, out, 0, faults)
            return None
        stream = current_stream(self.device)
        if stream not in loaded.streams or _is_capturing():
            loaded.keep_for(stream, self.device)
            self._launch_directly()
        self.launch(loaded.first, loaded.second, loaded.counts, stream, source, indices, out, faults)
        return None


_prepared: WeakSet[PreparedLaunches] = WeakSet()  # of calls; not those of a measured candidate
os.register_at_fork(after_in_child=_prepared.clear)  # a child has neither their device nor their compilers


def _all_prepared() -> list[PreparedLaunches]:
    # At once, as another thread may add to the set.
    references = list(_prepared.data)  # type: ignore[attr-defined]
    return [prepared for reference in references if (prepared := reference()) is not None]


def prepared_tasks() -> list[tuple[Task, int]]:
    """The problems of all calls so far that are still cached, each with its device."""
    return list(dict.fromkeys((prepared.task, prepared.device) for prepared in _all_prepared()))


def take_tuned() -> None:
    """Lets the cached calls take the kernels that were measured to be the fastest."""
    for prepared in _all_prepared():
        with torch.cuda.device(prepared.device):
            prepared.planned, prepared.jobs = tuned.plan(prepared.task), ()
            prepared._take()
            prepared._launch_directly()


def compiles_in_background() -> bool:
    """What POOLTIDE_COMPILE says: `background`, the default, or `wait`."""
    mode = os.environ.get("POOLTIDE_COMPILE", "background")
    if mode not in ("background", "wait"):
        raise ValueError(f"POOLTIDE_COMPILE is {mode!r}; it must be background or wait.")
    return mode == "background"


def wait_for_kernels(timeout: float | None = None) -> bool:
    """Waits until the kernels of all problems seen so far are compiled, and loads them.

    Returns False if that took longer than `timeout` seconds.
    """
    finished = background.wait(timeout)
    for prepared in _all_prepared():
        if prepared.jobs:
            with torch.cuda.device(prepared.device):
                prepared.improve()
    return finished


@cache
def warn_once(reason: str) -> None:
    warnings.warn(
        f"pooltide: a GPU kernel is not compiled, so a slower general kernel computes its problems: {reason}",
        RuntimeWarning,
        stacklevel=4,
    )


@cached(lambda prepared: (prepared,))
def prepare(problem: Problem, layout: str, device: int, aligned: bool = True) -> PreparedLaunches:
    """What launches a problem's kernels; raises NoCompiler with the reason why they can't be compiled."""
    return PreparedLaunches(problem, layout, device, aligned)


def run(
    problem: Problem, layout: str, arrays: Arrays, scratch: None = None, faults: torch.Tensor | None = None
) -> None:
    """Writes every cell of `out`, and a maximum's `indices`.

    The arrays are 5-D tensors (N, C, D, H, W), dense in `layout`, on one GPU.
    """
    out, source = arrays.out, arrays.grad_output if problem.gradient else arrays.input
    if out.numel() == 0:
        return
    if source.numel() == 0:
        out.zero_()
        return
    with torch.cuda.device(out.device):
        prepare(problem, layout, out.get_device())(source, arrays.indices, out, faults)


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
