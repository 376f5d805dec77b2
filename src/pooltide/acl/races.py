"""Takes the memory that each queued job reads or writes, and every wait of the host and of streams.

Returns the queued job that conflicts with a new access, or None. It must not touch the data, nor wait.

The jobs of a stream have ascending numbers. `Stream.waited` is the last job that the host has waited for;
`Stream.clock` lists the jobs of other streams that come before the stream's next job, because it waits for
their events. Each queued job leaves a `Use` at every range of memory that it reads or writes.

A use that nobody has waited for is a race when another access needs that memory, even if the job happens
to be done by then. So a missing wait is reported in every run, not only when the race is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .call_sites import Site
from .written_bytes import Cells

if TYPE_CHECKING:
    from .stream_queue import Stream

Clock = dict["Stream", int]  # the last job of each stream that is finished, or comes before
_EXACT_WORK = 1 << 16  # NumPy's limit of steps to decide whether two views share cells
_lock = threading.Lock()
AFTER_WAITS: list[Callable[[], None]] = []  # called when the host has waited for jobs


@dataclass(slots=True, eq=False)  # a frozen one takes three times as long to make
class Use:
    stream: Stream
    job: int
    title: str  # of the function that submitted the job
    argument: str
    writes: bool
    base: int  # the address from which the cells count
    cells: Cells
    site: Site | None = None  # of the call that submitted the job

    def waited_for(self, stream: Stream | None) -> bool:
        """Whether the host, or this stream, has waited for the job."""
        if self.job <= self.stream.waited:
            return True
        return stream is not None and (self.stream is stream or stream.clock.get(self.stream, 0) >= self.job)

    def describe(self) -> str:
        """What the job does, as a part of a sentence."""
        verb = "writes" if self.writes else "reads"
        return f"{self.title} {verb} ({self.argument}) on {self.stream}"

    @property
    def origin(self) -> tuple[str, Site | None]:
        return f"{self.title} was called", self.site


class _Lane:
    """The uses of one range of addresses by one stream, all reads or all writes.

    Buckets of 2**level bytes index the uses of up to 2**level bytes: a use is in one or two of them, so a
    lookup reads few uses.
    """

    __slots__ = ("_all", "_buckets", "_kept", "_levels", "last")

    def __init__(self) -> None:
        self._all: dict[Hashable, int] = {}  # each use's identity, and when it came
        self._buckets: dict[tuple[int, int], dict[Hashable, tuple[int, Use]]] = {}
        self._levels: set[int] = set()
        self._kept = 0  # how many uses the last `_prune` left
        self.last = 0  # the last job

    def __len__(self) -> int:
        return len(self._all)

    def add(self, new: Use, time: int) -> None:
        """Add a use, or replace an equal one. Sometimes drops the uses that the host has waited for."""
        key, self.last = (new.title, new.base, new.cells), new.job
        self._all[key] = time
        for at in _buckets(new):
            self._levels.add(at[0])
            bucket = self._buckets.setdefault(at, {})
            bucket.pop(key, None)  # the new one comes last
            bucket[key] = time, new
        if len(self._all) > 2 * self._kept + 64:
            self._prune()

    def _prune(self) -> None:
        uses = {key: timed for bucket in self._buckets.values() for key, timed in bucket.items()}
        self._all, self._buckets, self._levels = {}, {}, set()
        self._kept = len(uses)  # so that `add` does not prune again
        for time, use in sorted(uses.values(), key=lambda timed: timed[0]):
            if not use.waited_for(None):
                self.add(use, time)
        self._kept = len(self._all)

    def first(self, base: int, cells: Cells, stream: Stream | None) -> tuple[int, Use] | None:
        """The first use that has one of these cells and that the host, or the stream, has not waited for."""
        conflicts = []
        for level in self._levels:
            for bucket in self._near(level, base + cells.low, base + cells.high):
                for time, use in bucket.values():
                    if not use.waited_for(stream) and share_bytes(use.base, use.cells, base, cells):
                        conflicts.append((time, use))
                        break
        return min(conflicts, key=lambda timed: timed[0], default=None)

    def _near(self, level: int, low: int, high: int) -> Iterable[dict[Hashable, tuple[int, Use]]]:
        begin, end = low >> level, max(high - 1, low) >> level
        if end - begin < len(self._buckets):
            return (self._buckets.get((level, at), {}) for at in range(begin, end + 1))
        return (bucket for (at_level, at), bucket in self._buckets.items() if at_level == level)


def _buckets(use: Use) -> set[tuple[int, int]]:
    low, high = use.base + use.cells.low, use.base + use.cells.high
    level = max((high - low).bit_length(), 6)
    return {(level, low >> level), (level, max(high - 1, low) >> level)}


class Uses:
    """The uses of one range of addresses by jobs that the host has not waited for yet."""

    __slots__ = ("_lanes", "_time")

    def __init__(self) -> None:
        self._lanes: dict[tuple[Stream, bool], _Lane] = {}  # by stream, and whether it writes
        self._time = 0

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def add(self, new: Use) -> None:
        """Add a use, and drop those that the host has waited for or that the same stream repeats."""
        with _lock:
            self._time += 1
            key = new.stream, new.writes
            lane = self._lanes.get(key)
            if lane is None or lane.last <= new.stream.waited:
                self._lanes = {at: old for at, old in self._lanes.items() if old.last > at[0].waited}
                lane = self._lanes[key] = _Lane()
            lane.add(new, self._time)

    def race(self, base: int, cells: Cells, *, writes: bool, stream: Stream | None = None) -> Use | None:
        """A use that conflicts with reading, or writing, these cells now; None when there is none.

        `stream` is the stream whose next job needs the cells; None when the host needs them.
        """
        if not self._lanes:
            return None
        with _lock:
            conflicts = [
                first
                for (by, written), lane in self._lanes.items()
                if (writes or written) and by is not stream and lane.last > by.waited
                if (first := lane.first(base, cells, stream)) is not None
            ]
        return min(conflicts, key=lambda timed: timed[0])[1] if conflicts else None

    def streams(self) -> list[Stream]:
        """The streams with jobs that use the range."""
        with _lock:
            return list(dict.fromkeys(stream for stream, _ in self._lanes))


def share_bytes(base: int, cells: Cells, other_base: int, others: Cells) -> bool:
    """Whether the cells of two ranges certainly have a byte in common."""
    shift = other_base - base
    if others.high + shift <= cells.low or cells.high <= others.low + shift:
        return False
    if cells.dense and others.dense:
        return True
    low = min(cells.low, others.low + shift)
    span = max(cells.high, others.high + shift) - low
    bytes_ = np.lib.stride_tricks.as_strided(np.zeros(1, np.bool_), (span,), (1,), writeable=False)
    first, second = _view(bytes_, cells, -low), _view(bytes_, others, shift - low)
    try:
        return np.shares_memory(first, second, max_work=_EXACT_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False  # only a certain overlap is reported


def _view(bytes_: Any, cells: Cells, shift: int) -> Any:
    """The cells as a view that is never read: only its addresses count."""
    start = bytes_[cells.start + shift :]
    shape, steps = (*cells.shape, cells.itemsize), (*cells.steps, 1)
    return np.lib.stride_tricks.as_strided(start, shape, steps, writeable=False)


def extend(clock: Clock, other: Mapping[Stream, int]) -> None:
    """Merge the other clock into this one, without the jobs that the host has waited for."""
    for stream, job in other.items():
        if job > stream.waited and job > clock.get(stream, 0):
            clock[stream] = job


def wait_for(clock: Mapping[Stream, int]) -> None:
    """Record that the host has waited for all jobs of a clock."""
    with _lock:
        for stream, job in clock.items():
            stream.waited = max(stream.waited, job)
    for release in AFTER_WAITS:
        release()
