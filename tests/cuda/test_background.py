"""The compiler in the background, with a stub in its place: no GPU is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from pooltide.kernels.cuda.general.general import sources
from pooltide.kernels.cuda.runtime import background, shipped
from pooltide.kernels.cuda.runtime.driver import NoCompiler
from pooltide.kernels.cuda.source import Source

KERNELS = [Source("some.cu", "some", (), (("N", n),)) for n in range(12)]


@pytest.fixture(autouse=True)
def empty() -> Any:
    background._forget()
    yield
    background.wait()
    background._forget()


def test_at_most_two_threads_compile_and_each_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, compiled, lock = 0, 0, [], threading.Lock()
    begun = threading.Event()  # all kernels: a kernel that is ready would be started again

    def compile(source: Source, device: int) -> Any:
        nonlocal running, most
        begun.wait()
        with lock:
            running += 1
            most = max(most, running)
            compiled.append(source)
        time.sleep(0.01)
        with lock:
            running -= 1
        return source

    monkeypatch.setattr(background, "compiled", compile)
    jobs = [background.start(kernel, 0) for kernel in KERNELS * 3]
    begun.set()
    assert background.wait()
    assert most == 2
    assert sorted(compiled, key=KERNELS.index) == KERNELS
    assert all(job.kernel == job.source for job in jobs)
    assert background._state.threads == 0


def test_a_failure_is_kept_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def compile(source: Source, device: int) -> Any:
        tried.append(source)
        raise NoCompiler("no") if source is KERNELS[0] else ZeroDivisionError("bad")

    monkeypatch.setattr(background, "compiled", compile)
    for _ in range(2):
        jobs = [background.start(kernel, 0) for kernel in KERNELS[:2]]
        assert background.wait()
        assert [job.reason for job in jobs] == ["no", "ZeroDivisionError: bad"]
    assert len(tried) == 2


def test_waiting_ends_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(background, "compiled", lambda *_: go.wait())
    background.start(KERNELS[0], 0)
    assert not background.wait(0.01)
    go.set()
    assert background.wait(10)


EXIT = """
import sys, threading, time
from pooltide.kernels.cuda.runtime import background
from pooltide.kernels.cuda.source import Source
begun = threading.Event()
def compile(source, device):
    begun.set()
    time.sleep(0.3)
    print("compiled", flush=True)
background.compiled = compile
for n in range(40):
    background.start(Source("some.cu", "some", (), (("N", n),)), 0)
begun.wait()
"""


def test_the_interpreter_exits_after_the_kernels_that_are_being_compiled() -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    assert 1 <= done.stdout.count("compiled") <= 4
    assert time.monotonic() - start < 40


def test_a_forked_child_starts_without_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(background, "compiled", lambda *_: go.wait())
    for kernel in KERNELS:
        background.start(kernel, 0)
    with background._state.lock:  # another thread may hold it at the moment of the fork
        child = os.fork()
        if child == 0:
            monkeypatch.setattr(background, "compiled", lambda source, device: source)
            job = background.start(KERNELS[0], 0)
            os._exit(0 if background.wait(20) and job.kernel is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    go.set()


def test_a_forked_child_does_not_wait_for_its_parents_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from pooltide.kernels.cuda import launch

    class Prepared:
        device, jobs = 0, (background.Job(KERNELS[0], 0),)

        def improve(self) -> None:
            raise AssertionError("a child cannot use the device")

    prepared = Prepared()
    launch._prepared.add(prepared)  # type: ignore[arg-type]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if launch.wait_for_kernels(0) else 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_a_thread_the_caller_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(**_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(background, "compiled", lambda source, device: source)
    assert background.start(KERNELS[0], 0, no_thread).kernel is KERNELS[0]


def test_shipped_code_is_found_by_its_source(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    monkeypatch.setattr(shipped.nvrtc, "library", lambda: SimpleNamespace(architectures=(70, 90)))
    monkeypatch.setattr(
        shipped.nvrtc,
        "compile_program",
        lambda library, text, headers, target: (f"{target} {text}".encode(), ""),
    )
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "general.zip")
    kernels = list(sources())
    assert shipped.load(kernels[0], 90) is None
    shipped.write(tmp_path / "general.zip")
    assert len({shipped.load(kernel, 90) for kernel in kernels}) == len(kernels) == 36
    assert shipped.load(kernels[0], 90).startswith(b"sm_90")
    assert shipped.load(kernels[0], 70) is None
    assert shipped.load(KERNELS[0], 90) is None
    (tmp_path / "general.zip").write_bytes(b"no zip file")
    assert shipped.load(kernels[0], 90) is None
