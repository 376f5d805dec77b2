"""The kernels among processes and threads, and beyond 2**31 elements."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pooltide
from paths import PROGRAMS, SUPPORT
from pooltide import _native

SHAPE = (5, 67, 53, 59)


@pytest.fixture(autouse=True)
def two_threads() -> None:
    pooltide.set_num_threads(2)


def problem(seed: int) -> tuple[Any, Any, Any]:
    """A gradient, indices and the result that one thread gives."""
    rng = np.random.default_rng(seed)
    grad = rng.standard_normal((*SHAPE[:2], 29, 31)).astype(np.float32)
    indices = rng.integers(0, SHAPE[2] * SHAPE[3], grad.shape)
    want = np.zeros((SHAPE[0] * SHAPE[1], SHAPE[2] * SHAPE[3]), np.float32)
    for plane, (g, i) in enumerate(zip(grad.reshape(-1, 899), indices.reshape(-1, 899), strict=True)):
        np.add.at(want[plane], i, g)
    return grad, indices, want.reshape(SHAPE)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes() -> None:
    grad, indices, want = problem(1)
    np.testing.assert_array_equal(pooltide.adaptive_max_pool2d_backward(grad, SHAPE, indices), want)
    for _ in range(5):
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # a child that hangs dies, and fails the test
            same = all(
                np.array_equal(pooltide.adaptive_max_pool2d_backward(grad, SHAPE, indices), want)
                for _ in range(3)
            )
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(pooltide.adaptive_max_pool2d_backward(grad, SHAPE, indices), want)


def test_eight_python_threads() -> None:
    cases = [problem(seed) for seed in range(8)]
    average = pooltide.avg_pool2d_backward(cases[0][0], (*SHAPE[:2], 57, 61), 2, ceil_mode=True)
    wrong: list[int] = []
    start = threading.Barrier(8)

    def work(which: int) -> None:
        grad, indices, want = cases[which]
        start.wait()
        for _ in range(20):
            if not np.array_equal(pooltide.adaptive_max_pool2d_backward(grad, SHAPE, indices), want):
                wrong.append(which)
            again = pooltide.avg_pool2d_backward(cases[0][0], (*SHAPE[:2], 57, 61), 2, ceil_mode=True)
            if not np.array_equal(again, average):
                wrong.append(which)

    workers = [threading.Thread(target=work, args=(which,)) for which in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert not any(worker.is_alive() for worker in workers)
    assert wrong == []


def test_the_gil_is_released() -> None:
    """While a kernel runs, another Python thread must make progress."""
    rng = np.random.default_rng(3)
    grad = rng.standard_normal((16, 64, 61, 61)).astype(np.float32)
    out = np.empty((16, 64, 122, 122), np.float32)
    turns, done = 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.0005)

    counter = threading.Thread(target=count)
    pooltide.set_num_threads(1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # so that only a release, never a time slice, lets the counter run
    try:
        counter.start()
        before = turns
        for _ in range(3):
            pooltide.avg_pool2d_backward(grad, out.shape, 2, out=out)
        after = turns
    finally:
        sys.setswitchinterval(interval)
        done.set()
        counter.join()
    assert after > before


def test_huge_pages_can_be_asked_for() -> None:
    with mmap.mmap(-1, 8 << 20) as block:
        address = np.frombuffer(block, np.uint8).ctypes.data
        assert _native.use_huge_pages(address, 8 << 20) in (True, False)
        assert _native.use_huge_pages(address, 100) is False


@pytest.mark.slow
def test_every_allocation_of_a_call_may_fail(tmp_path: Path) -> None:
    if (compiler := shutil.which("gcc")) is None:
        pytest.skip("NOT TESTED: no gcc here")
    library = tmp_path / "failing_malloc.so"
    source = PROGRAMS / "failing_malloc.c"
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True)
    run = subprocess.run(
        [sys.executable, str(SUPPORT / "out_of_memory.py")],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    failed = {name: int(count) for name, count in re.findall(r"(.*): (\d+) allocations\n", run.stdout)}
    # At least the result, the scratch buffer or the tables, and for two threads their state and their start.
    assert len(failed) == 8
    assert min(failed.values()) >= 5, "the allocations did not fail"


def available() -> int:
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024


@pytest.mark.slow
def test_beyond_two_to_the_31_elements() -> None:
    shape, outputs = (1, 3, 26_755, 26_759), (3, 2)
    assert np.prod(shape, dtype=np.int64) > 2**31
    need = int(np.prod(shape, dtype=np.int64)) * 2
    if available() < need * 5 // 4 + (2 << 30):
        pytest.skip(f"needs {need >> 30} GiB of memory")
    grad = np.arange(1, 19, dtype=np.float16).reshape(1, 3, *outputs)
    indices = np.full(grad.shape, 7, np.int64)
    last = shape[2] * shape[3] - 1
    indices[0, 2, 2, 1] = last
    out = np.empty(shape, np.float16)
    out[0, :, ::4099] = np.nan
    pooltide.adaptive_max_pool2d_backward(grad, shape, indices, out=out)
    planes = out.reshape(3, -1)
    assert planes[2, last] == 18
    assert [float(p[7]) for p in planes] == [21, 57, 13 + 14 + 15 + 16 + 17]
    assert [int(np.count_nonzero(p)) for p in planes] == [1, 1, 2]
    pooltide.adaptive_avg_pool3d_backward(
        np.full((1, 3, 1, 1, 1), 1024, np.float16), (1, 3, 1, *shape[2:]), out=out[:, :, None]
    )
    assert np.array_equal(np.unique(planes[:, :: 2**20 + 7]), np.unique(planes[:, -5:]))
