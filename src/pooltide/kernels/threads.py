"""How many threads a kernel may use. Results never depend on it."""

from __future__ import annotations

import os

from ..operators.plain import plain, shown

MOST = 4096  # threads that a kernel takes
_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_num_threads() -> int:
    """The number of threads that a kernel may use; at the start, the cores this process may use."""
    return _threads


def set_num_threads(n: int) -> None:
    """Let kernels use `n` threads, 1 to 4096. The results are the same bits for every count."""
    global _threads
    count = plain(n)
    if type(count) is not int:
        raise TypeError(f"set_num_threads: n is {shown(n)}; it must be an int, 1 to {MOST}.")
    if not 1 <= count <= MOST:
        raise ValueError(f"set_num_threads: n is {shown(count)}; it must be 1 to {MOST}.")
    _threads = count
