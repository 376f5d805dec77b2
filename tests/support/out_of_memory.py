"""Lets every allocation of a call fail, one after the other: each time in a new child, which has no helper threads.

    LD_PRELOAD=failing_malloc.so python tests/support/out_of_memory.py

After each failure the call must have raised MemoryError or computed the right result, and the next call must compute
the right result on all its threads. Prints how many allocations of each call failed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import pooltide
from pooltide.kernels.plan import ENVIRONMENT

THREADS = 3
SHAPE, POOLED = (2, 24, 96, 96), (2, 24, 48, 48)
_LIBRARY = ctypes.PyDLL(None)


def calls() -> dict[str, Callable[[], Any]]:
    rng = np.random.default_rng(1)
    x, grad = rng.standard_normal(SHAPE).astype(np.float32), rng.standard_normal(POOLED).astype(np.float32)
    values, indices = pooltide.max_pool2d(x, 2, return_indices=True)
    halves = grad.astype(np.float16)
    return {
        "avg_pool2d_backward": lambda: pooltide.avg_pool2d_backward(grad, SHAPE, 2),
        "adaptive_avg_pool2d_backward": lambda: pooltide.adaptive_avg_pool2d_backward(grad, SHAPE),
        "max_pool2d_backward": lambda: pooltide.max_pool2d_backward(grad, SHAPE, indices, 2),
        "max_pool2d_backward, half": lambda: pooltide.max_pool2d_backward(halves, SHAPE, indices, 2),
        "avg_pool2d": lambda: pooltide.avg_pool2d(x, 3, 1, 1),
        "max_pool2d": lambda: pooltide.max_pool2d(x, 3, 1, 1, return_indices=True),
        "max_unpool2d": lambda: pooltide.max_unpool2d(values, indices, 2),
        "max_unpool2d_backward": lambda: pooltide.max_unpool2d_backward(x, POOLED, indices, 2),
    }


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, tuple):
        return all(map(np.array_equal, found, expected))
    return np.array_equal(found, expected)


def in_child(call: Callable[[], Any], expected: Any, failing: int) -> str:
    """What is wrong if this allocation fails: "", or "none" if the call makes fewer allocations."""
    result = None
    _LIBRARY.fail_allocation(failing)
    try:
        result = call()
    except MemoryError:
        pass
    except SystemError as error:  # NumPy forgets its MemoryError in some functions
        if "<ufunc" not in str(error):
            raise
    finally:
        failed = _LIBRARY.fail_allocation(0)
    if result is not None and not same(result, expected):
        return "the result is wrong"
    if not same(call(), expected):
        return "the next result is wrong"
    threads = len(os.listdir("/proc/self/task"))
    if threads != THREADS:
        return f"the next call runs on {threads} threads"
    return "" if failed else "none"


def outcome(call: Callable[[], Any], expected: Any, failing: int) -> str:
    """What `in_child` returns in a new process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            text = in_child(call, expected, failing)
        except BaseException:
            text = traceback.format_exc()
        os.write(write, text.encode()[-4000:])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return text if status == 0 else f"{text} ends with {status}"


def main() -> None:
    pooltide.set_num_threads(THREADS)
    os.environ[ENVIRONMENT] = "reference"  # so that the children prepare the compiled kernels
    given = calls()
    expected = {name: call() for name, call in given.items()}
    del os.environ[ENVIRONMENT]
    for name, call in given.items():
        failing = 1
        while (wrong := outcome(call, expected[name], failing)) != "none":
            if wrong:
                raise SystemExit(f"{name}, allocation {failing}: {wrong}")
            failing += 1
        print(f"{name}: {failing - 1} allocations")


if __name__ == "__main__":
    main()
