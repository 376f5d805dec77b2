"""The order of queued work: what the host, and each stream, knows to be finished.

The jobs of a stream have ascending numbers. `Stream.waited` is the last job that the host has waited for;
`Stream.clock` lists the jobs of other streams that come before the stream's next job, because it waits for
their events. Each queued job leaves a `Use` at every range of memory that it reads or writes.

A use that nobody has waited for is a race when something else needs that memory, even if the job happens
to be done by then. So a forgotten wait is found in every run, not only when the race is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .written import Cells, byte_range

if TYPE_CHECKING:
    from .stream import Stream

Clock = dict["Stream", int]  # the last job of each stream that is finished, or comes before
_EXACT_WORK = 1 << 16  # NumPy's limit of steps to decide whether two views share cells
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Use:
    stream: Stream
    job: int
    title: str  # of the function that submitted the job
    argument: str
    writes: bool
    base: int  # the address from which the cells count
    cells: Cells

    def waited_for(self, stream: Stream | None) -> bool:
        """Whether the host, or this stream, has waited for the job."""
        if self.job <= self.stream.waited:
            return True
        return stream is not None and (self.stream is stream or stream.clock.get(self.stream, 0) >= self.job)

    def race(self) -> str:
        """What the job does, as a part of a sentence."""
        verb = "writes" if self.writes else "reads"
        return f"{self.title} {verb} ({self.argument}) on {self.stream}"


class Uses:
    """The uses of one range of addresses by jobs that the host has not waited for yet."""

    __slots__ = ("_uses",)

    def __init__(self) -> None:
        self._uses: list[Use] = []

    def add(self, new: Use) -> None:
        """Add a use, and forget those that are waited for or repeated by the same stream."""
        with _lock:
            self._uses = [u for u in self._uses if not u.waited_for(None) and not _replaces(new, u)]
            self._uses.append(new)

    def race(self, base: int, cells: Cells, *, writes: bool, stream: Stream | None = None) -> Use | None:
        """A use that conflicts with reading, or writing, these cells now; None when there is none.

        `stream` is the stream whose next job needs the cells; None when the host needs them.
        """
        if not self._uses:
            return None
        with _lock:
            for use in self._uses:
                if (writes or use.writes) and not use.waited_for(stream) and _overlap(use, base, cells):
                    return use
        return None

    def streams(self) -> list[Stream]:
        """The streams with jobs that use the range."""
        with _lock:
            return list(dict.fromkeys(use.stream for use in self._uses))


def _replaces(new: Use, old: Use) -> bool:
    same_kind = new.stream is old.stream and new.writes == old.writes and new.title == old.title
    return same_kind and new.base == old.base and new.cells == old.cells


def _overlap(use: Use, base: int, cells: Cells) -> bool:
    """Whether a use has one of these cells."""
    shift = base - use.base
    if cells.high + shift <= use.cells.low or use.cells.high <= cells.low + shift:
        return False
    if use.cells.dense and cells.dense:
        return True
    span = max(use.cells.high, cells.high + shift) - min(use.cells.low, cells.low + shift)
    low = min(use.cells.low, cells.low + shift)
    bytes_ = np.lib.stride_tricks.as_strided(np.zeros(1, np.bool_), (span,), (1,), writeable=False)
    first, second = _view(bytes_, use.cells, -low), _view(bytes_, cells, shift - low)
    try:
        return np.shares_memory(first, second, max_work=_EXACT_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False  # a finding must be certain


def _view(bytes_: Any, cells: Cells, shift: int) -> Any:
    """The cells as a view that is never read: only its addresses count."""
    start = bytes_[cells.start + shift :]
    shape, steps = (*cells.shape, cells.itemsize), (*cells.steps, 1)
    return np.lib.stride_tricks.as_strided(start, shape, steps, writeable=False)


def extend(clock: Clock, other: Mapping[Stream, int]) -> None:
    """Let a clock know what the other knows. Streams whose jobs the host has waited for are left out."""
    for stream, job in other.items():
        if job > stream.waited and job > clock.get(stream, 0):
            clock[stream] = job


def wait_for(clock: Mapping[Stream, int]) -> None:
    """Record that the host has waited for all jobs of a clock."""
    with _lock:
        for stream, job in clock.items():
            stream.waited = max(stream.waited, job)


HOST = Uses()  # of host memory that aclrtMallocHost did not give out; its cells count from address 0


def host_cells(address: int, count: int) -> Cells:
    return byte_range(address, address + count)
