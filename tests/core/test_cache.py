"""The cache: all that calls derive from their shapes takes a bounded number of bytes, at every entrance."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pooltide
from pooltide import acl, aclnn, geometry
from pooltide.cache import ENTRY, Cache, cached
from pooltide.kernels import cpu
from pooltide.kernels.calls import CALLS

MIB = 1 << 20


@pytest.fixture(autouse=True)
def same_limit() -> Iterator[None]:
    before = pooltide.get_cache_bytes()
    yield
    pooltide.set_cache_bytes(before)


def table(nbytes: int) -> Any:
    return SimpleNamespace(nbytes=nbytes)


def test_bytes_bound_the_cache_and_what_is_used_stays() -> None:
    cache = Cache(100 * (ENTRY + 1000))
    cache.add("used", 0, table(1000))
    for key in range(10_000):
        cache.add(key, key, table(1000))
        assert cache.nbytes <= cache.limit
        assert cache.get("used") == 0
    kept = [key for key in range(10_000) if cache.get(key) is not None]
    assert len(kept) >= 48
    assert kept[-1] == 9999


def test_tables_that_values_share_count_once() -> None:
    cache, shared = Cache(100 * ENTRY), table(20 * ENTRY)
    for key in range(10):
        cache.add(key, key, shared, None)
    assert cache.nbytes == 30 * ENTRY
    assert all(cache.get(key) == key for key in range(10))


def test_a_value_larger_than_the_cache_is_not_kept_and_a_large_one_alone() -> None:
    cache = Cache(100 * ENTRY)
    cache.add("small", 1)
    cache.add("huge", 2, table(100 * ENTRY))
    assert cache.get("huge") is None
    assert cache.get("small") == 1
    cache.add("large", 3, table(99 * ENTRY))
    assert cache.get("large") == 3
    assert cache.nbytes == cache.limit


def test_a_value_that_no_one_uses_is_freed() -> None:
    freed: list[int] = []

    class Value:
        def __init__(self, number: int) -> None:
            self.number = number

        def __del__(self) -> None:
            freed.append(self.number)

    cache = Cache(10 * ENTRY)
    for number in range(30):
        cache.add(number, Value(number))
    gc.collect()
    assert len(freed) >= 20
    cache.clear()
    gc.collect()
    assert sorted(freed) == list(range(30))


def test_threads_use_and_fill_one_cache() -> None:
    """Values are forgotten while other threads compute with them."""
    pooltide.set_cache_bytes(300 << 10)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(300):
            n = rng.randrange(2, 400)
            found = pooltide.avg_pool1d_backward(np.ones((1, 1, n), np.float32), (1, 1, 2 * n), 2)
            if not (found == 0.5).all() or found.shape[-1] != 2 * n:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert CALLS.nbytes <= 300 << 10


def test_a_cached_function_may_return_none() -> None:
    calls: list[int] = []

    @cached()
    def nothing(n: int) -> None:
        calls.append(n)

    for n in (1, 2, 1, 2):
        nothing(n)
    assert calls == [1, 2]


def test_the_setting_is_a_number_of_bytes() -> None:
    pooltide.set_cache_bytes(np.int64(5 << 20))  # type: ignore[arg-type]
    assert pooltide.get_cache_bytes() == 5 << 20
    for wrong in (-1, 2.5, "1", None, True):
        with pytest.raises(
            (TypeError, ValueError), match=r"set_cache_bytes: n is .*; it must be .*0 or more"
        ):
            pooltide.set_cache_bytes(wrong)  # type: ignore[arg-type]
    pooltide.set_cache_bytes(0)
    for _ in range(2):
        assert (pooltide.avg_pool1d_backward(np.ones((1, 1, 5), np.float32), (1, 1, 10), 2) == 0.5).all()
    assert CALLS.nbytes == 0


@pytest.mark.parametrize(
    ("text", "must"),
    [
        ("1000000", "1000000"),
        ("", str(256 << 20)),
        ("1e9", "it must be a number of bytes. The limit is 268435456.\n"),
        (str(2**64), str(2**64)),
    ],
)
def test_the_environment_sets_the_bytes(text: str, must: str) -> None:
    program = "import pooltide; print(pooltide.get_cache_bytes())"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "POOLTIDE_CACHE_BYTES": text},
        capture_output=True,
        text=True,
        check=False,
    )
    assert must in run.stdout + run.stderr


def arrays(n: int, m: int) -> None:
    x = np.ones((1, 2, n, m), np.float32)
    y, at = pooltide.max_pool2d(x, 2, return_indices=True)
    pooltide.max_pool2d_backward(y, x.shape, at, 2)
    pooltide.avg_pool2d_backward(y, x.shape, 2)
    pooltide.adaptive_avg_pool2d(x[..., ::-1], (3, 2))
    pooltide.max_unpool2d(y, at, 2, output_size=(n, m))


def two_phases(n: int, m: int) -> None:
    acl.aclInit(None)
    acl.aclrtSetDevice(0)
    stream, _ = acl.aclrtCreateStream()
    x = acl.tensor_from_numpy(np.ones((1, 2, n, m), np.float32), acl.ACL_FORMAT_NCHW)
    g = acl.tensor_from_numpy(np.ones((1, 2, n // 2, m // 2), np.float32), acl.ACL_FORMAT_NCHW)
    pair, none = acl.aclCreateIntArray([2, 2]), acl.aclCreateIntArray([0, 0])
    size, executor, status = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
        g, x, pair, pair, none, False, True, 0, 0, x
    )
    assert (size, status) == (0, 0)
    assert aclnn.aclnnAvgPool2dBackward(None, 0, executor, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    for tensor in (x, g):
        acl.aclrtFree(tensor.address)
        acl.aclDestroyTensor(tensor)
    for sizes in (pair, none):
        acl.aclDestroyIntArray(sizes)
    acl.aclrtDestroyStream(stream)
    acl.aclFinalize()


def functional(n: int, m: int) -> None:
    torch = pytest.importorskip("torch")
    import pooltide.torch as pt

    x = torch.ones(1, 2, n, m, requires_grad=True)
    pt.functional.max_pool2d(x, 2).sum().backward()
    pt.functional.avg_pool2d(x, 2).sum().backward()
    y, at = pt.functional.max_pool2d(x.detach(), 2, return_indices=True)
    pt.functional.max_unpool2d(y, at, 2, output_size=(n, m))


def _patched(n: int, m: int, forward: bool) -> None:
    torch = pytest.importorskip("torch")
    import pooltide.torch as pt

    x = torch.ones(1, 2, n, m, requires_grad=True)
    with pt.patch(forward=forward):
        torch.nn.functional.max_pool2d(x, 2).sum().backward()
        torch.nn.functional.adaptive_avg_pool2d(x, (3, 2)).sum().backward()


def patched(n: int, m: int) -> None:
    _patched(n, m, False)


def patched_forward(n: int, m: int) -> None:
    _patched(n, m, True)


ENTRANCES: list[Callable[[int, int], None]] = [arrays, two_phases, functional, patched, patched_forward]


def resident() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def shapes(count: int) -> Iterator[tuple[int, int]]:
    """Up to 143² different shapes, mixed: late ones are no larger than early ones.

    Tensors that grow would change how malloc takes and returns memory, which the soaks would measure, too.
    """
    for number in range(count):
        yield tuple(4 + n for n in divmod(number * 7919 % 143**2, 143))  # type: ignore[misc]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small calls on several threads spend their time on waiting for each other, on a busy machine most of it."""
    libraries: list[Any] = [pooltide]
    if importlib.util.find_spec("torch"):
        libraries.append(importlib.import_module("torch"))
    before = [library.get_num_threads() for library in libraries]
    for library in libraries:
        library.set_num_threads(1)
    yield
    for library, threads in zip(libraries, before, strict=True):
        library.set_num_threads(threads)


def soak(entrance: Callable[[int, int], None], count: int, limit: int, slack: int) -> None:
    """New shapes take no more memory once the cache is full, and malloc's free lists have settled."""
    pooltide.set_cache_bytes(limit)
    full = False
    for number, shape in enumerate(shapes(count)):
        entrance(*shape)
        if number == count // 2:
            full, before = CALLS._second != {}, resident()
    assert full, "the cache was not full when the measurement began"
    assert CALLS.nbytes <= limit
    assert resident() - before < slack


@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda entrance: entrance.__name__)
def test_new_shapes_take_no_more_memory(entrance: Callable[[int, int], None]) -> None:
    soak(entrance, 400, MIB // 2, 6 * MIB)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda entrance: entrance.__name__)
def test_thousands_of_new_shapes_take_no_more_memory(entrance: Callable[[int, int], None]) -> None:
    soak(entrance, 6000, 4 * MIB, 4 * MIB)


@pytest.mark.slow
def test_thousands_of_shapes_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is derived anew when 3,000 shapes with small tables come again."""
    torch = pytest.importorskip("torch")
    import pooltide.torch as pt

    derived: list[Any] = []
    real = geometry.spans

    def watched(*args: Any) -> Any:
        derived.append(args)
        return real(*args)

    monkeypatch.setattr(geometry, "spans", watched)
    monkeypatch.setattr(cpu, "spans", watched)

    def run() -> int:
        derived.clear()
        with pt.patch(forward=True):
            for number in range(3000):
                x = torch.ones(1, 1, 4 + number // 60, 4 + number % 60, requires_grad=True)
                torch.nn.functional.max_pool2d(x, 2).sum().backward()
        return len(derived)

    assert run() > 3000
    assert run() == 0
