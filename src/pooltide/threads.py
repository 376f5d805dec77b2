"""How many threads a kernel may use. Results never depend on it."""

from __future__ import annotations

import os

from .call import is_int

_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_num_threads() -> int:
    """The number of threads that a kernel may use; at the start, the cores this process may use."""
    return _threads


def set_num_threads(n: int) -> None:
    """Let kernels use `n` threads, at least 1. The results are the same bits for every count."""
    global _threads
    if not is_int(n):
        raise TypeError(f"set_num_threads: n is {n!r}; it must be an int of at least 1.")
    if n < 1:
        raise ValueError(f"set_num_threads: n is {n}; it must be at least 1.")
    _threads = int(n)
