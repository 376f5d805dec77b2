"""Runs the CPU kernels on PyTorch's threads.

PyTorch's threads are a team of an OpenMP runtime. They spin for some milliseconds after each operation, so
threads of our own would wait for processors. `use_team()` gives the compiled code the runtime's functions.
"""

from __future__ import annotations

import ctypes

import torch

from ..kernels import cpu
from ..kernels.threads import get_num_threads

PARALLEL, NUMBER = "GOMP_parallel", "omp_get_thread_num"  # of GNU's runtime; others offer them, too


def use_team() -> bool:
    """Returns whether there is such a team. Without it, kernels run on threads of our own."""
    if not torch.backends.openmp.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        process = ctypes.CDLL(None)
        parallel, number = (ctypes.cast(process[name], ctypes.c_void_p).value for name in (PARALLEL, NUMBER))
    except (AttributeError, OSError, TypeError):  # the names are not in the process, or it has no names
        return False
    return bool(parallel and number) and cpu.use_openmp(parallel or 0, number or 0)


def num_threads() -> int:
    """Returns how many threads a kernel for tensors may use; negative, as they are those of PyTorch."""
    return -min(get_num_threads(), torch.get_num_threads())
