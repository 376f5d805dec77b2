"""10,000 calls on random new sizes from four threads, in one process: the bits of the CPU, and nothing is left.

Kernels are compiled in the background meanwhile; some calls are captured in CUDA graphs, and the process forks.
Fails if about as many calls wait as kernels are compiled: other programs may delay a few. Prints the longest calls
(`pytest -s`), and the stacks of all threads when a call has taken 0.2 s.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide  # noqa: E402
import pooltide.torch as pt  # noqa: E402
from pooltide.cache import CALLS  # noqa: E402
from pooltide.kernels.cuda.runtime import background, compiler  # noqa: E402
from pooltide.torch import functional  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU: the GPU is NOT tested"),
]
THREADS, CALLS_OF_THREAD = 4, 2500
CAPTURES, FORKS = 10, 5  # of a thread
WARM = 100  # calls of a thread before memory, files and threads are counted
PAUSE = 0.003  # seconds of a collection of garbage, a fork, or the beginning of a capture that count
LONGEST = 0.2  # seconds: a compiler takes more
_capturing = threading.Lock()  # a capture begins by waiting for the device, which another capture forbids


def average(draw: random.Random, data: Any, form: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    h, w = draw.randrange(8, 100), draw.randrange(8, 100)
    g = view(data, draw, (h + 1) // 2, (w + 1) // 2, form)
    return lambda g: pt.avg_pool2d_backward(g, (2, 8, h, w), 3, 2, 1), (g,)


def adaptive(draw: random.Random, data: Any, form: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    h, w, out = draw.randrange(8, 100), draw.randrange(8, 100), draw.randrange(2, 8)
    return lambda g: pt.adaptive_avg_pool2d_backward(g, (2, 8, h, w)), (view(data, draw, out, out, form),)


def maximum(draw: random.Random, data: Any, form: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    x = view(data, draw, draw.randrange(8, 100), draw.randrange(8, 100), form)
    values, indices = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    return lambda g, i: pt.max_pool2d_backward(g, x.shape, i, 3, 2, 1, check_indices=False), (values, indices)


def forward(draw: random.Random, data: Any, form: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    x = view(data, draw, draw.randrange(8, 100), draw.randrange(8, 100), form)
    return lambda x: functional.max_pool2d(x, 3, 2, 1), (x,)


def view(data: Any, draw: random.Random, h: int, w: int, form: Any) -> Any:
    first = draw.randrange(1000)
    return data[first : first + 16 * h * w].view(2, 8, h, w).contiguous(memory_format=form)


class Calls:
    """What the calls of all threads need and leave."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.data = {
            dtype: torch.randn(16 * 100 * 100 + 1000).to(dtype) for dtype in (torch.float32, torch.half)
        }
        self.grad = np.random.default_rng(1).standard_normal((2, 3, 7, 9)).astype(np.float32)
        self.must = pooltide.avg_pool2d_backward(self.grad, (2, 3, 14, 18), 2)
        self.done: Counter[str] = Counter()
        self.times: list[tuple[float, float, str]] = []  # when a call began and ended, and its pool
        self.pauses: list[tuple[float, float]] = []  # of all threads, by Python or a fork
        self.began: dict[int, float] = {}  # by thread
        self.stacks: list[str] = []

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        me, begin = threading.get_ident(), time.perf_counter()
        self.began[me] = begin
        yield
        del self.began[me]
        self.times.append((begin, time.perf_counter(), name))

    def paused(self, begin: float) -> None:
        if (end := time.perf_counter()) - begin > PAUSE:
            self.pauses.append((begin, end))

    def collects(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self.collection = time.perf_counter()
        else:
            self.paused(self.collection)

    def longest(self, paused: bool) -> list[tuple[float, str]]:
        """The times of calls, the longest first: of those during which a pause was, or of the others."""
        return sorted(
            (
                (end - begin, name)
                for begin, end, name in self.times
                if paused == any(begin < until and since < end for since, until in self.pauses)
            ),
            reverse=True,
        )

    def watch(self, finished: threading.Event) -> None:
        """Keeps the stacks of all threads when a call takes long."""
        seen = set()
        while not finished.wait(0.05):
            for me, begin in list(self.began.items()):
                if time.perf_counter() - begin > LONGEST and (me, begin) not in seen:
                    seen.add((me, begin))
                    frames = sys._current_frames()
                    self.stacks += ["".join(traceback.format_stack(frame)[-6:]) for frame in frames.values()]

    def work(self, seed: int, calls: int) -> None:
        draw = random.Random(seed)
        captured = set(draw.sample(range(calls), min(CAPTURES, calls // 10)))
        forked = set(draw.sample(range(calls), min(FORKS, calls // 10)))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for number in range(calls):
                pool = draw.choice((average, adaptive, maximum, forward))
                dtype = draw.choice(list(self.data))
                form = draw.choice((torch.contiguous_format, torch.channels_last))
                function, given = pool(draw, self.data[dtype], form)
                on_gpu = [one.cuda() for one in given]
                must = function(*given) if number % 2 == 0 or number in captured else None
                if number in captured:
                    found, kind = self.capture(function, on_gpu, stream), "captured"
                else:
                    kind = pool.__name__
                    with self.timed(kind):
                        found = function(*on_gpu)
                if must is not None:
                    assert torch.equal(found.cpu(), must), (kind, given[0].shape, dtype, form)
                    self.done["compared"] += 1
                self.done[kind] += 1
                if number in forked:
                    self.fork()

    def capture(self, function: Callable[..., Any], given: list[Any], stream: Any) -> Any:
        """The result of a first call in a graph, replayed."""
        graph = torch.cuda.CUDAGraph()
        with _capturing:
            capture = torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local")
            begin = time.perf_counter()
            capture.__enter__()  # collects garbage and empties the allocator's cache
            self.paused(begin)
            try:
                found = function(*given)
            finally:
                capture.__exit__(None, None, None)
        found.fill_(float("nan"))
        graph.replay()
        result = found.clone()
        stream.synchronize()
        return result

    def fork(self) -> None:
        """A child computes on the CPU, and has no compilers to wait for."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks of a process with threads
            begin = time.perf_counter()
            child = os.fork()
        if child == 0:
            status = 2
            try:
                faulthandler.dump_traceback_later(15)
                found = pooltide.avg_pool2d_backward(self.grad, (2, 3, 14, 18), 2)
                status = 0 if np.array_equal(found, self.must) and pt.wait_for_kernels(0) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        self.paused(begin)
        end = time.monotonic() + 20
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            assert time.monotonic() < end, "a child hangs"
            time.sleep(0.002)
        assert os.waitstatus_to_exitcode(ended[1]) == 0
        self.done["forks"] += 1


def held() -> dict[str, int]:
    """What the process holds when nothing is cached."""
    from pooltide.kernels.cuda import launch

    assert pt.wait_for_kernels()
    CALLS.clear()
    gc.collect()
    torch.cuda.synchronize()
    tables = sum(-(-table.nbytes // 512) * 512 for one in launch._captured for table in one.tables)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "bytes on the GPU, without tables of graphs": torch.cuda.memory_allocated() - tables,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "MiB of the process": int(status["VmRSS"].split()[0]) >> 10,
        "bytes of tables of graphs": tables,
    }


def test_ten_thousand_calls_from_four_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("POOLTIDE_COMPILE", "background")
    monkeypatch.setenv("POOLTIDE_CACHE", str(tmp_path))
    torch.set_num_threads(1)
    calls, finished = Calls(), threading.Event()
    for dtype, data in calls.data.items():  # loads the general kernels, and makes PyTorch's buffers
        for pool in (average, adaptive, maximum, forward):
            function, given = pool(random.Random(dtype.itemsize), data, torch.contiguous_format)
            function(*[one.cuda() for one in given])
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda seed: calls.work(seed, WARM), range(THREADS)))
    before, kernels, start = held(), compiler.loaded(), time.perf_counter()
    calls.times.clear()
    gc.callbacks.append(calls.collects)
    watcher = threading.Thread(target=calls.watch, args=(finished,))
    watcher.start()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda seed: calls.work(seed, CALLS_OF_THREAD), range(10, 10 + THREADS)))
    finished.set()
    watcher.join()
    seconds = time.perf_counter() - start
    unfinished = len(background.unfinished())
    after = held()
    gc.callbacks.remove(calls.collects)
    alone, paused = calls.longest(False), calls.longest(True)
    pauses = sorted((end - begin for begin, end in calls.pauses), reverse=True)
    print(
        f"\n{seconds:.1f} s, {dict(calls.done)}, {compiler.loaded() - kernels} kernels, {unfinished} unfinished"
    )
    print("longest, ms:", [(round(1e3 * t, 1), name) for t, name in alone[:10]])
    print(
        f"{len(alone)}: median {1e3 * alone[len(alone) // 2][0]:.2f}, p99 {1e3 * alone[len(alone) // 100][0]:.2f}"
    )
    print("longest of", len(paused), "calls in pauses, ms:", [round(1e3 * t, 1) for t, _ in paused[:10]])
    print("longest of", len(pauses), "pauses, ms:", [round(1e3 * t, 1) for t in pauses[:10]])
    print("before", before, "\nafter ", after)
    print("\n\n".join(calls.stacks[:24]))
    assert (
        sum(calls.done.values()) - calls.done["compared"] - calls.done["forks"] >= THREADS * CALLS_OF_THREAD
    )
    for name in ("bytes on the GPU, without tables of graphs", "files", "threads"):
        assert after[name] <= before[name], name
    waited = [one for one in alone if one[0] > LONGEST]
    assert len(waited) < (compiler.loaded() - kernels) / 4, f"calls waited for a compiler: {waited[:20]}"
