"""Contexts, events, waits, asynchronous copies and the other calls around the operators."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from calls import said
from pooltide import acl, aclnn
from pooltide.acl import pool_jobs
from pooltide.acl.contexts import CONTEXTS
from pooltide.acl.races import Use
from pooltide.acl.stream_queue import Job, Stream
from pooltide.operators.dtypes import RUNTIME
from pooltide.operators.pages import ASCEND_PRODUCTS

INVALID, RT_INVALID, BAD_DEVICE, NO_CONTEXT, OTHER_CONTEXT = 100000, 107000, 107001, 107002, 107003
BAD, NULL, INNER_NULL = 161002, 161001, 561103
H2D, D2H, D2D = 1, 2, 3

pytestmark = pytest.mark.usefixtures("runtime")


class Gate:
    """A job that keeps a stream busy until `open` is called."""

    def __init__(self, stream: Any) -> None:
        self._event = threading.Event()
        target = stream if stream is not None else CONTEXTS.current().default_stream()  # type: ignore[union-attr]
        assert isinstance(target, Stream)
        target.submit(Job("gate", lambda: self._event.wait(60)))

    def open(self) -> None:
        self._event.set()


class Small:
    """aclnnAdaptiveAvgPool3dBackward of (2, 1, 1, 3) to (2, 1, 5, 7)."""

    def __init__(self) -> None:
        self.host = np.arange(6, dtype=np.float32).reshape(2, 1, 1, 3)
        self.grad = acl.tensor_from_numpy(self.host)
        self.out = acl.tensor_from_numpy(np.zeros((2, 1, 5, 7), np.float32))

    def plan(self) -> Any:
        size, executor, ret = aclnn.aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(
            self.grad, self.out, self.out
        )
        assert (size, ret) == (0, 0)
        return executor

    def run(self, stream: Any) -> int:
        status: int = aclnn.aclnnAdaptiveAvgPool3dBackward(None, 0, self.plan(), stream)
        return status


@pytest.fixture
def streams() -> Iterator[tuple[Any, Any]]:
    pair = acl.aclrtCreateStream()[0], acl.aclrtCreateStream()[0]
    yield pair
    for stream in pair:
        acl.aclrtDestroyStream(stream)


def _device(count: int = 64, fill: int | None = 0) -> int:
    address, ret = acl.aclrtMalloc(count, 0)
    assert ret == 0
    assert address is not None
    if fill is not None:
        assert acl.aclrtMemset(address, count, fill, count) == 0
    return address


# A forgotten wait.


def _uses(small: Small) -> dict[str, Any]:
    """What a program must not do before it has waited for the operator."""
    back, other = np.zeros(70, np.float32), _device(280)
    return {
        "copy to the host": lambda: acl.aclrtMemcpy(back, 280, small.out.address, 280, D2H),
        "copy of the last byte": lambda: acl.aclrtMemcpy(back, 280, small.out.address + 279, 1, D2H),
        "copy to the device": lambda: acl.aclrtMemcpy(other, 280, small.out.address, 280, D2D),
        "overwrite the result": lambda: acl.aclrtMemcpy(small.out.address, 280, back, 280, H2D),
        "overwrite the input": lambda: acl.aclrtMemcpy(small.grad.address, 24, back, 24, H2D),
        "fill": lambda: acl.aclrtMemset(small.out.address, 280, 0, 280),
        "free the result": lambda: acl.aclrtFree(small.out.address),
        "free the input": lambda: acl.aclrtFree(small.grad.address),
    }


WAITS = (
    *("copy to the host", "copy of the last byte", "copy to the device", "overwrite the result"),
    *("overwrite the input", "fill", "free the result", "free the input"),
)


@pytest.mark.parametrize("what", WAITS)
def test_a_forgotten_wait_is_named(what: str, streams: Any, capfd: Any) -> None:
    small = Small()
    acl.set_checks("warn")
    assert small.run(streams[0]) == 0
    assert _uses(small)[what]() == 0
    (line,) = capfd.readouterr().err.splitlines()
    verb, argument = ("reads", "gradOutput") if "input" in what else ("writes", "out")
    assert re.search(
        rf"pooltide: aclrt\w+: \w+ is 0x\w+, memory that aclnnAdaptiveAvgPool3dBackward {verb} \({argument}\) on "
        r"stream 1, and the program has not waited for that; call aclrtSynchronizeStream first\.",
        line,
    )


@pytest.mark.parametrize("what", ["copy to the host", "overwrite the input", "free the result"])
def test_strict_refuses_it(what: str, streams: Any) -> None:
    small = Small()
    acl.set_checks("strict")
    assert small.run(streams[0]) == 0
    call = _uses(small)[what]
    assert call() == RT_INVALID
    assert "call aclrtSynchronizeStream first. [107000" in said()
    assert acl.aclrtSynchronizeStream(streams[0]) == 0
    assert call() == 0


@pytest.mark.parametrize("finish", ["stream", "device", "event", "query", "event query", "destroy", "reset"])
def test_every_wait_counts(finish: str, streams: Any, capfd: Any) -> None:
    small = Small()
    acl.set_checks("strict")
    stream, _ = acl.aclrtCreateStream()
    event, _ = acl.aclrtCreateEvent()
    assert small.run(stream) == 0
    assert acl.aclrtRecordEvent(event, stream) == 0
    if finish == "stream":
        assert acl.aclrtSynchronizeStreamWithTimeout(stream, -1) == 0
    elif finish == "device":
        assert acl.aclrtSynchronizeDevice() == 0
    elif finish == "event":
        assert acl.aclrtSynchronizeEvent(event) == 0
    elif finish == "query":
        while acl.aclrtStreamQuery(stream) != (acl.ACL_STREAM_STATUS_COMPLETE, 0):
            pass
    elif finish == "event query":
        while acl.aclrtQueryEventStatus(event) != (acl.ACL_EVENT_RECORDED_STATUS_COMPLETE, 0):
            pass
    elif finish == "destroy":
        assert acl.aclrtDestroyStream(stream) == 0
    else:
        assert acl.aclrtResetDevice(0) == 0 == acl.aclrtSetDevice(0)
    back = np.zeros(70, np.float32)
    assert acl.aclrtMemcpy(back, 280, small.out.address, 280, D2H) == 0
    assert capfd.readouterr().err == ""


def test_memory_that_the_operator_does_not_use_needs_no_wait(streams: Any, capfd: Any) -> None:
    """Two views of one block; the input of a gradient, whose shape alone counts; a result that is only read."""
    block = _device(280)
    view = lambda at: acl.aclCreateTensor([35], 0, [2], at, 2, [70], block)  # noqa: E731  # odd and even floats
    acl.set_checks("strict")
    small = Small()
    small.out = acl.aclCreateTensor([1, 1, 5, 7], 0, [70, 70, 14, 2], 1, 2, [70], block)
    small.grad = acl.tensor_from_numpy(np.ones((1, 1, 1, 3), np.float32))
    size, executor, _ = aclnn.aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(small.grad, small.out, small.out)
    assert aclnn.aclnnAdaptiveAvgPool3dBackward(_device(size), size, executor, streams[0]) == 0
    np.testing.assert_array_equal(acl.tensor_to_numpy(view(0)), np.zeros(35, np.float32))
    with pytest.raises(
        ValueError, match=r"tensor_to_numpy: tensor is memory that aclnn.*call aclrtSync.* first"
    ):
        acl.tensor_to_numpy(view(1))
    assert acl.aclrtMemcpy(np.zeros(3, np.float32), 12, small.grad.address, 12, D2H) == 0
    assert capfd.readouterr().err == ""


def test_destroying_a_tensor_of_numpy_waits_too(streams: Any, capfd: Any) -> None:
    small = Small()
    acl.set_checks("warn")
    assert small.run(streams[0]) == 0
    assert acl.aclDestroyTensor(small.out) == 0
    assert "aclDestroyTensor: tensor is 0x" in capfd.readouterr().err


@pytest.mark.parametrize("shared", [False, True])
def test_the_work_of_a_copy_does_not_grow_with_the_copies_before_it(
    streams: Any, monkeypatch: Any, shared: bool
) -> None:
    """Copies of different bytes, on two streams, and with `shared` of bytes that overlap on one of them."""
    looks: list[int] = []
    waited_for = Use.waited_for
    monkeypatch.setattr(Use, "waited_for", lambda *args: looks.append(1) or waited_for(*args))

    def looks_of(n: int) -> int:
        block, source = _device(16 * n, None), acl.aclrtMallocHost(16 * n)[0]
        gates = [Gate(stream) for stream in streams]
        looks.clear()
        for i in range(n):
            at, size = (0, 16 * (i + 1)) if shared else (16 * i, 16)
            stream = streams[0 if shared else i % 2]
            assert acl.aclrtMemcpyAsync(block + at, size, source + at, size, H2D, stream) == 0
        found = len(looks)
        for gate, stream in zip(gates, streams, strict=True):
            gate.open()
            assert acl.aclrtSynchronizeStream(stream) == 0
        return found

    looks_of(20)
    assert looks_of(1600) <= 6 * (looks_of(400) + 400)


def test_many_jobs_leave_few_uses(streams: Any) -> None:
    small = Small()
    for _ in range(500):
        assert small.run(streams[0]) == 0
    block = small.out.cells()[0]  # type: ignore[index]
    assert len(block.uses) == 1
    assert acl.aclrtSynchronizeStream(streams[0]) == 0


def test_a_freed_block_keeps_no_memory(streams: Any) -> None:
    """Tensors and executors remember their block, and programs may keep them for long."""
    small = Small()
    executor = small.plan()
    assert acl.aclSetAclOpExecutorRepeatable(executor) == 0
    assert aclnn.aclnnAdaptiveAvgPool3dBackward(None, 0, executor, streams[0]) == 0
    assert acl.aclrtSynchronizeStream(streams[0]) == 0
    block = small.out.cells()[0]  # type: ignore[index]
    assert acl.aclrtFree(small.out.address) == 0
    assert len(block.data) == 0
    assert executor.launch is not None
    assert acl.aclDestroyAclOpExecutor(executor) == 0
    assert executor.launch is None


def test_a_job_starts_without_a_wait(streams: Any) -> None:
    done = threading.Event()
    streams[0].submit(Job("alone", done.set))
    assert done.wait(60)


# Races between streams.


def test_a_race_between_streams_is_named(streams: Any, capfd: Any) -> None:
    first, second = streams
    small, target = Small(), _device(280)
    acl.set_checks("warn")
    assert small.run(first) == 0
    assert acl.aclrtMemcpyAsync(target, 280, small.out.address, 280, D2D, second) == 0
    (line,) = capfd.readouterr().err.splitlines()
    assert (
        "memory that aclnnAdaptiveAvgPool3dBackward writes (out) on stream 1, and stream 2 does not wait for that; "
        "call aclrtRecordEvent there and aclrtStreamWaitEvent here first." in line
    )
    acl.set_checks("strict")
    assert small.run(second) == 361001
    assert "out is in a block at 0x" in said()
    assert acl.aclrtMemsetAsync(small.out.address, 280, 0, 280, second) == RT_INVALID


def test_every_input_that_was_not_waited_for_is_named(streams: Any, capfd: Any) -> None:
    first, second = streams
    grad = acl.tensor_from_numpy(np.ones((1, 1, 2, 3), np.float32))
    indices = acl.tensor_from_numpy(np.zeros((1, 1, 2, 3), np.int64))
    x = acl.tensor_from_numpy(np.zeros((1, 1, 5, 7), np.float32))
    out = acl.tensor_from_numpy(np.zeros((1, 1, 5, 7), np.float32))
    for tensor, count in ((grad, 24), (indices, 48)):
        assert acl.aclrtMemsetAsync(tensor.address, count, 0, count, first) == 0

    def run() -> int:
        _, executor, ret = aclnn.aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(grad, x, indices, out)
        assert ret == 0
        status: int = aclnn.aclnnAdaptiveMaxPool2dBackward(None, 0, executor, second)
        return status

    acl.set_checks("strict")
    assert run() == 361001
    acl.set_checks("warn")
    capfd.readouterr()
    assert run() == 0
    (line,) = capfd.readouterr().err.splitlines()
    for text in (said(), line):
        assert "gradOutput is in a block at 0x" in text
        assert "indices is in a block at 0x" in text
        assert text.count("on stream 1, and stream 2 does not wait for that; call aclrtRecordEvent") == 2


def test_an_event_makes_it_right(streams: Any) -> None:
    first, second = streams
    acl.set_checks("strict")
    small, target = Small(), _device(280)
    address, back = _pinned(70, np.float32)
    event, _ = acl.aclrtCreateEventWithFlag(acl.ACL_EVENT_SYNC)
    gate = Gate(first)
    assert small.run(first) == 0
    assert acl.aclrtRecordEvent(event, first) == 0
    assert acl.aclrtStreamWaitEvent(second, event) == 0
    assert acl.aclrtQueryEventWaitStatus(event) == (acl.ACL_EVENT_WAIT_STATUS_NOT_READY, 0)
    assert acl.aclrtMemcpyAsync(target, 280, small.out.address, 280, D2D, second) == 0
    assert acl.aclrtMemcpyAsync(address, 280, target, 280, D2H, second) == 0
    assert acl.aclrtStreamQuery(second) == (acl.ACL_STREAM_STATUS_NOT_READY, 0)
    assert acl.aclrtSynchronizeStreamWithTimeout(second, 5) == 107020
    assert "took longer than timeout, 5 ms" in said()
    assert (back == 0).all()
    gate.open()
    assert acl.aclrtSynchronizeStream(second) == 0
    assert acl.aclrtQueryEventWaitStatus(event) == (acl.ACL_EVENT_WAIT_STATUS_COMPLETE, 0)
    want = acl.tensor_to_numpy(small.out)  # the wait for the second stream counts for the first one's job too
    np.testing.assert_array_equal(back.reshape(want.shape), want)
    assert back.any()


def test_streams_that_wait_for_each_other_remember_little(streams: Any) -> None:
    first, second = streams
    event, _ = acl.aclrtCreateEvent()
    for _ in range(20):
        other, _ = acl.aclrtCreateStream()
        for source, target in ((other, first), (first, second), (second, first)):
            assert acl.aclrtRecordEvent(event, source) == 0 == acl.aclrtStreamWaitEvent(target, event)
        assert acl.aclrtSynchronizeStream(first) == 0 == acl.aclrtSynchronizeStream(second)
        assert acl.aclrtDestroyStream(other) == 0
    assert first.clock == {} == second.clock


def test_a_job_that_ctrl_c_interrupts_is_run_again(streams: Any) -> None:
    """A thread that waits runs the job, so the interrupt reaches the job."""
    runs: list[bool] = []

    def interrupt() -> None:
        runs.append(threading.current_thread() is threading.main_thread())
        if runs == [True]:
            raise KeyboardInterrupt

    streams[0].submit(Job("interrupted", interrupt))
    with contextlib.suppress(KeyboardInterrupt):
        streams[0].wait()
    assert acl.aclrtSynchronizeStream(streams[0]) == 0
    assert len(runs) == 1 + runs[0]


def test_later_jobs_of_the_first_stream_are_not_waited_for(streams: Any) -> None:
    first, second = streams
    acl.set_checks("strict")
    small, target = Small(), _device(280)
    event, _ = acl.aclrtCreateEvent()
    assert acl.aclrtRecordEvent(event, first) == 0
    assert small.run(first) == 0
    assert acl.aclrtStreamWaitEvent(second, event) == 0
    assert acl.aclrtMemcpyAsync(target, 280, small.out.address, 280, D2D, second) == RT_INVALID
    assert acl.aclrtRecordEvent(event, first) == 0
    assert acl.aclrtStreamWaitEvent(second, event) == 0
    assert acl.aclrtMemcpyAsync(target, 280, small.out.address, 280, D2D, second) == 0


# Asynchronous copies and fills, host memory.


def _pinned(count: int, dtype: Any = np.uint8) -> tuple[int, Any]:
    """Memory of aclrtMallocHost, filled with zeros: its address, and an array of it."""
    address, ret = acl.aclrtMallocHost(count * np.dtype(dtype).itemsize)
    assert ret == 0
    assert address is not None
    raw = (ctypes.c_uint8 * (count * np.dtype(dtype).itemsize)).from_address(address)
    array = np.frombuffer(raw, dtype)
    array[:] = 0
    return address, array


def test_a_copy_of_ordinary_host_memory_is_done_when_the_call_returns(streams: Any, capfd: Any) -> None:
    """CANN 8.5: only memory of aclrtMallocHost is copied later. The call also waits for the jobs before it."""
    stream, _ = streams
    acl.set_checks("strict")
    small, back = Small(), np.zeros(70, np.float32)
    gate = Gate(stream)
    assert small.run(stream) == 0
    threading.Timer(0.05, gate.open).start()
    assert acl.aclrtMemcpyAsync(back, 280, small.out.address, 280, D2H, stream) == 0
    assert back.any()
    np.testing.assert_array_equal(back.reshape(2, 1, 5, 7), acl.tensor_to_numpy(small.out))  # needs no wait
    data, block = np.full(16, 3, np.uint8), _device(16)
    assert acl.aclrtMemcpyAsync(block, 16, data, 16, H2D, stream) == 0
    data[:] = 4
    assert acl.aclrtMemcpy(back, 16, block, 16, D2H) == 0
    assert back.view(np.uint8)[:16].tolist() == [3] * 16
    assert acl.aclrtFree(block) == 0


def test_a_failed_job_stays_for_the_synchronization(streams: Any) -> None:
    stream, _ = streams
    acl.set_checks("strict")
    block, back = _device(16, None), np.zeros(16, np.uint8)
    assert acl.aclrtMemcpyAsync(back, 16, block, 16, D2H, stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 500000
    assert "never written" in said()


@pytest.mark.parametrize("kind", [acl.ACL_MEMCPY_HOST_TO_HOST, acl.ACL_MEMCPY_DEFAULT])
def test_an_asynchronous_copy_from_host_to_host_is_refused(kind: int) -> None:
    (address, _), back = _pinned(8), np.zeros(8, np.uint8)
    assert acl.aclrtMemcpyAsync(back, 8, address, 8, kind, None) == 207000
    assert "aclrtMemcpy copies from host to host" in said()
    assert acl.aclrtMemcpy(back, 8, address, 8, kind) == 0


def test_copies_and_fills_are_done_in_stream_order(streams: Any) -> None:
    stream, _ = streams
    acl.set_checks("strict")
    block, (target, back), (source, data) = _device(64, None), _pinned(64), _pinned(64)
    gate = Gate(stream)
    assert acl.aclrtMemsetAsync(block, 64, 0x107, 64, stream) == 0
    assert acl.aclrtMemcpyAsync(block + 8, 56, source, 8, H2D, stream) == 0
    assert acl.aclrtMemcpyAsync(target, 64, block, 64, acl.ACL_MEMCPY_DEFAULT, stream) == 0
    data[:8] = 9  # the copy reads the memory when the stream reaches it
    assert (back == 0).all()
    gate.open()
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert back[:24].tolist() == [7] * 8 + [9] * 8 + [7] * 8


def test_host_memory(streams: Any, capfd: Any) -> None:
    stream, _ = streams
    acl.set_checks("warn")
    host, ret = acl.aclrtMallocHost(16)
    assert ret == 0
    assert host is not None
    block = _device(16, 5)
    assert acl.aclrtMemcpyAsync(host, 16, block, 16, D2H, stream) == 0
    assert acl.aclrtMemcpy(block, 16, host, 16, H2D) == 0
    assert acl.aclrtFreeHost(host) == 0
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(", and")[0].split(", memory that ")[1] for line in lines] == [
        "aclrtMemcpyAsync reads (src) on stream 1",
        "aclrtMemcpyAsync writes (dst) on stream 1",
        "aclrtMemcpyAsync writes (dst) on stream 1",
    ]
    assert acl.aclrtFreeHost(host) == RT_INVALID
    assert "hostPtr is 0x" in (message := said())
    assert "that was freed; it must be the start of a block that aclrtMallocHost gave out" in message
    assert acl.aclrtFreeHost(block) == RT_INVALID
    assert acl.aclrtMallocHost(0) == (None, RT_INVALID)
    small, _ = acl.aclrtMallocHost(8)
    assert acl.aclrtMemcpy(small, 16, block, 16, D2H) == RT_INVALID
    assert "0 bytes into a block of 8 bytes" in said()


def test_a_freed_block_fails_the_stream_that_reaches_it(streams: Any) -> None:
    """Force: the copy is queued when its memory goes."""
    stream, _ = streams
    acl.set_checks("off")
    block = _device(16, 5)
    address, back = _pinned(16)
    acl.set_checks("strict")
    gate = Gate(stream)
    assert acl.aclrtMemcpyAsync(address, 16, block, 16, D2H, stream) == 0
    from pooltide.acl.memory_blocks import MEMORY

    assert MEMORY.free(block) is None
    gate.open()
    assert acl.aclrtSynchronizeStream(stream) == 500000
    assert "src is 0x" in (message := said())
    assert "freed before the stream reached it" in message
    assert (back == 0).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": 9}, "kind is 9; it must be one of"),
        ({"count": -1}, "count is -1"),
        ({"count": 9, "destMax": 8}, "count is 9; it must be at most destMax, 8"),
        ({"src": None}, "src is null"),
        ({"stream": 7}, "stream is an int, 7"),
        ({"kind": D2H}, "kind must be ACL_MEMCPY_HOST_TO_DEVICE"),
    ],
)
def test_a_bad_asynchronous_copy_is_refused(change: dict[str, Any], sentence: str) -> None:
    good = {
        "dst": _device(8),
        "destMax": 8,
        "src": np.ones(8, np.uint8),
        "count": 8,
        "kind": 1,
        "stream": None,
    }
    assert acl.aclrtMemcpyAsync(**good) == 0
    assert acl.aclrtMemcpyAsync(**(good | change)) in (INVALID, RT_INVALID)
    assert sentence in said()


def test_fills() -> None:
    block, back = _device(8, None), np.zeros(8, np.uint8)
    assert acl.aclrtMemset(block, 8, -1, 4) == 0
    assert acl.aclrtMemset(block + 4, 4, 3, 4) == 0
    assert acl.aclrtMemcpy(back, 8, block, 8, D2H) == 0
    assert back.tolist() == [255] * 4 + [3] * 4
    assert acl.aclrtMemset(back, 8, 1, 2) == 0
    assert back.tolist() == [1, 1, 255, 255, 3, 3, 3, 3]
    for arguments, sentence in (
        ((block, 8, 0, 9), "count is 9; it must be at most maxCount, 8"),
        ((block + 4, 8, 0, 8), "4 bytes into a block of 8 bytes"),
        ((None, 8, 0, 8), "devPtr is null"),
        ((block, 8, 2**40, 8), "value is 1099511627776"),
        ((block, "8", 0, 8), "maxCount is '8'"),
    ):
        assert acl.aclrtMemset(*arguments) != 0
        assert sentence in said()
        assert acl.aclrtMemsetAsync(*arguments, None) != 0
        assert sentence in said()


def test_memory_info_and_policies() -> None:
    free, total, ret = acl.aclrtGetMemInfo(acl.ACL_HBM_MEM)
    assert ret == 0
    assert 0 < free < total
    assert acl.aclrtGetMemInfo(99) == (0, 0, INVALID)
    assert "attr is 99" in said()
    for function in (acl.aclrtMalloc, acl.aclrtMallocAlign32, acl.aclrtMallocCached):
        for policy in (*range(8), acl.ACL_MEM_TYPE_HIGH_BAND_WIDTH, acl.ACL_MEM_TYPE_LOW_BAND_WIDTH | 1):
            address, ret = function(8, policy)
            assert ret == 0
            assert acl.aclrtFree(address) == 0


# Contexts.


def test_contexts_belong_to_threads_and_have_their_own_streams_and_options(streams: Any) -> None:
    default, ret = acl.aclrtGetCurrentContext()
    assert ret == 0
    context, ret = acl.aclrtCreateContext(0)
    assert ret == 0
    assert acl.aclrtGetCurrentContext() == (context, 0)
    assert acl.aclrtCtxSetSysParamOpt(0, 1) == 0
    assert acl.aclrtSetSysParamOpt(0, 2) == 0
    assert acl.aclrtSynchronizeStream(streams[0]) == OTHER_CONTEXT
    assert "stream is stream 1, of another context; it must be" in said()
    assert Small().run(streams[0]) == 361001
    seen = []
    thread = threading.Thread(target=lambda: seen.append(acl.aclrtGetCurrentContext()))
    thread.start(), thread.join()
    assert seen == [(default, 0)]
    assert acl.aclrtSetCurrentContext(default) == 0
    assert acl.aclrtCtxGetSysParamOpt(0) == (0, 0)
    assert acl.aclrtGetSysParamOpt(0) == (2, 0)
    assert acl.aclrtSynchronizeStream(streams[0]) == 0
    assert acl.aclrtSetCurrentContext(context) == 0
    assert acl.aclrtCtxGetSysParamOpt(0) == (1, 0)
    stream, _ = acl.aclrtCreateStream()
    assert acl.aclrtDestroyContext(context) == 0
    assert acl.aclrtGetCurrentContext() == (default, 0)
    assert acl.aclrtSynchronizeStream(stream) == RT_INVALID
    for bad in (context, None, 7, "x", stream):
        for call in (acl.aclrtSetCurrentContext, acl.aclrtDestroyContext):
            assert call(bad) == RT_INVALID
            assert "it must be a context of aclrtCreateContext" in said()
    assert acl.aclrtDestroyContext(default) == RT_INVALID
    assert "context is the default context of aclrtSetDevice" in said()
    assert acl.aclrtCreateContext(1) == (None, BAD_DEVICE)


def test_a_context_with_work_in_flight_is_not_destroyed_silently(capfd: Any) -> None:
    for level, status in (("warn", 0), ("strict", RT_INVALID)):
        acl.set_checks(level)
        context, _ = acl.aclrtCreateContext(0)
        assert Small().run(None) == 0
        assert acl.aclrtDestroyContext(context) == status
        text = said() if status else capfd.readouterr().err
        assert (
            "aclrtDestroyContext: context has jobs on the default stream of a context that the program has not "
            "waited for; call aclrtSynchronizeStream first." in text
        )


def test_every_product_has_a_chip() -> None:
    assert set(RUNTIME["soc_names"]) == set(ASCEND_PRODUCTS)


def test_devices() -> None:
    assert acl.aclrtGetDevice() == (0, 0)
    assert acl.aclrtGetDeviceCount() == (1, 0)
    assert acl.aclrtGetRunMode() == (acl.ACL_HOST, 0)
    assert acl.aclrtDeviceCanAccessPeer(0, 0) == (0, 0)
    assert acl.aclrtDeviceCanAccessPeer(0, 1) == (0, BAD_DEVICE)
    assert acl.aclrtDeviceEnablePeerAccess(1, 0) == BAD_DEVICE
    assert acl.aclrtGetSocName() == "Ascend910B1"
    assert acl.aclrtGetVersion()[0] == 1
    assert acl.aclnnInit(None) == 0 == acl.aclnnFinalize()
    assert acl.aclrtSetOpWaitTimeout(3) == 0 == acl.aclrtSetExceptionInfoCallback(None)


NEED_A_CONTEXT = {
    "aclrtCreateStream": lambda: acl.aclrtCreateStream()[-1],
    "aclrtCreateStreamWithConfig": lambda: acl.aclrtCreateStreamWithConfig(0, 1)[-1],
    "aclrtSynchronizeStream": lambda: acl.aclrtSynchronizeStream(None),
    "aclrtSynchronizeDevice": lambda: acl.aclrtSynchronizeDevice(),
    "aclrtMalloc": lambda: acl.aclrtMalloc(8, 0)[-1],
    "aclrtMallocHost": lambda: acl.aclrtMallocHost(8)[-1],
    "aclrtMemcpy": lambda: acl.aclrtMemcpy(np.zeros(1, np.uint8), 1, np.zeros(1, np.uint8), 1, 0),
    "aclrtMemset": lambda: acl.aclrtMemset(np.zeros(1, np.uint8), 1, 0, 1),
    "aclrtGetMemInfo": lambda: acl.aclrtGetMemInfo(1)[-1],
    "aclrtCreateEvent": lambda: acl.aclrtCreateEvent()[-1],
    "aclrtGetCurrentContext": lambda: acl.aclrtGetCurrentContext()[-1],
    "aclrtGetDevice": lambda: acl.aclrtGetDevice()[-1],
    "aclrtCtxGetSysParamOpt": lambda: acl.aclrtCtxGetSysParamOpt(0)[-1],
    "aclrtCtxSetSysParamOpt": lambda: acl.aclrtCtxSetSysParamOpt(0, 1),
}


@pytest.mark.parametrize("name", NEED_A_CONTEXT)
def test_without_aclrtSetDevice_there_is_no_context(name: str) -> None:
    assert acl.aclrtResetDevice(0) == 0
    assert NEED_A_CONTEXT[name]() == NO_CONTEXT
    assert said().startswith(f"{name}: this thread has no context; call aclrtSetDevice or")
    assert acl.aclrtSetDevice(0) == 0
    assert NEED_A_CONTEXT[name]() == 0


def test_phase_two_without_a_context() -> None:
    small = Small()
    executor = small.plan()
    assert acl.aclrtResetDevice(0) == 0
    assert aclnn.aclnnAdaptiveAvgPool3dBackward(None, 0, executor, None) == 361001
    assert "this thread has no context; call aclrtSetDevice" in said()


def test_another_thread_uses_the_default_context() -> None:
    """aclrtSetDevice in one thread of the process is enough, as CANN documents."""
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(acl.aclrtCreateStream()[1]))
    thread.start(), thread.join()
    assert seen == [0]


BEFORE_INIT = """
import numpy as np
from pooltide import acl
assert acl.aclFinalize() == 100001
assert acl.aclrtMalloc(8, 0) == (None, 107002), "no device yet"
assert acl.aclrtSetDevice(0) == 0
context, ret = acl.aclrtCreateContext(0)
assert ret == 0 == acl.aclrtSetCurrentContext(context)
stream, ret = acl.aclrtCreateStream()
assert ret == 0 == acl.aclrtSynchronizeStream(stream)
assert acl.aclInit(None) == 0, "it may still be called"
assert acl.aclInit(None) == 100002
assert acl.aclrtSynchronizeStream(stream) == 0
"""


@pytest.mark.parametrize("checks", ["warn", "strict", "off"])
def test_calls_before_aclInit_work_with_one_warning(checks: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_INIT],
        env=os.environ | {"POOLTIDE_CHECKS": checks},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == (checks != "off")
    assert all(
        "aclrtMalloc: it was called before aclInit, so the runtime starts now" in line for line in lines
    )


# Events.


def test_an_event_that_was_reset_is_named_so(streams: Any, capfd: Any) -> None:
    event, _ = acl.aclrtCreateEvent()
    assert acl.aclrtRecordEvent(event, streams[0]) == acl.aclrtResetEvent(event, streams[0]) == 0
    assert acl.aclrtSynchronizeStream(streams[0]) == acl.aclrtSynchronizeEvent(event) == 0
    assert "event was reset by aclrtResetEvent; call aclrtRecordEvent first" in capfd.readouterr().err


def test_elapsed_time_is_that_of_the_clock(streams: Any) -> None:
    stream, _ = streams
    (start, _), (end, _) = acl.aclrtCreateEvent(), acl.aclrtCreateEvent()
    assert acl.aclrtEventElapsedTime(start, end) == (0.0, 107006)
    assert "startEvent was never recorded; call aclrtRecordEvent first" in said()
    assert acl.aclrtRecordEvent(start, stream) == 0
    stream.submit(Job("pause", lambda: threading.Event().wait(0.03)))
    gate = Gate(stream)
    assert acl.aclrtRecordEvent(end, stream) == 0
    assert acl.aclrtEventElapsedTime(end, start) == (0.0, 107006)
    assert "startEvent is not reached yet" in said()
    gate.open()
    assert acl.aclrtSynchronizeEvent(end) == 0
    elapsed, ret = acl.aclrtEventElapsedTime(start, end)
    assert ret == 0
    assert 29 < elapsed < 60_000
    assert acl.aclrtEventElapsedTime(end, start) == (0.0, 107007)
    assert "it must be recorded first" in said()
    untimed, _ = acl.aclrtCreateEventWithFlag(acl.ACL_EVENT_SYNC)
    assert acl.aclrtEventElapsedTime(start, untimed) == (0.0, 107006)
    assert "endEvent has no flag ACL_EVENT_TIME_LINE" in said()
    assert acl.aclrtEventElapsedTime(None, end) == (0.0, RT_INVALID)


def test_an_event_that_was_never_recorded_is_a_finding(streams: Any, capfd: Any) -> None:
    for call in (
        lambda event: acl.aclrtStreamWaitEvent(streams[0], event),
        acl.aclrtSynchronizeEvent,
        lambda event: acl.aclrtQueryEventStatus(event)[-1],
        lambda event: acl.aclrtQueryEvent(event)[-1],
    ):
        event, _ = acl.aclrtCreateEvent()
        acl.set_checks("strict")
        assert call(event) == RT_INVALID
        assert "event was never recorded; call aclrtRecordEvent first" in said()
        acl.set_checks("warn")
        assert call(event) == 0 == call(event)
        assert capfd.readouterr().err.count("event was never recorded") == 1
        assert acl.aclrtRecordEvent(event, streams[0]) == 0 == acl.aclrtSynchronizeStream(streams[0])
        assert call(event) == 0
        assert acl.aclrtResetEvent(event, streams[0]) == 0 == acl.aclrtSynchronizeStream(streams[0])
        acl.set_checks("strict")
        event.reported = False
        assert call(event) == RT_INVALID
        said()


def test_bad_events(streams: Any) -> None:
    destroyed, _ = acl.aclrtCreateEvent()
    assert acl.aclrtDestroyEvent(destroyed) == 0
    for bad in (destroyed, None, 7, streams[0]):
        for call in (
            acl.aclrtDestroyEvent,
            acl.aclrtSynchronizeEvent,
            lambda event: acl.aclrtRecordEvent(event, None),
            lambda event: acl.aclrtResetEvent(event, None),
            lambda event: acl.aclrtStreamWaitEvent(None, event),
            lambda event: acl.aclrtQueryEventStatus(event)[-1],
            lambda event: acl.aclrtQueryEvent(event)[-1],
            lambda event: acl.aclrtQueryEventWaitStatus(event)[-1],
        ):
            assert call(bad) == RT_INVALID
            assert "it must be an event of aclrtCreateEvent" in said()
    for flag in (0, 64, -1, "1", None):
        for create in (acl.aclrtCreateEventWithFlag, acl.aclrtCreateEventExWithFlag):
            assert create(flag) == (None, INVALID)
            assert "flag is" in said()
    timed, _ = acl.aclrtCreateEventWithFlag(acl.ACL_EVENT_TIME_LINE)
    assert acl.aclrtRecordEvent(timed, None) == 0
    assert acl.aclrtStreamWaitEvent(None, timed) == RT_INVALID
    assert "event has no flag ACL_EVENT_SYNC" in said()
    once, _ = acl.aclrtCreateEventExWithFlag(acl.ACL_EVENT_SYNC)
    for event in (timed, once):
        assert acl.aclrtResetEvent(event, None) == RT_INVALID
        assert "event was created" in said()
    assert acl.aclrtSynchronizeStreamWithTimeout(None, -2) == INVALID
    assert acl.aclrtCreateStreamWithConfig(0, -1) == (None, INVALID)
    assert acl.aclrtSetStreamFailureMode(None, 1) == 0
    assert acl.aclrtSetStreamFailureMode(None, 5) == INVALID


def test_a_stream_that_is_destroyed_by_force_drops_its_jobs(streams: Any) -> None:
    _, second = streams
    small = Small()
    event, _ = acl.aclrtCreateEvent()
    stream, _ = acl.aclrtCreateStreamWithConfig(0, acl.ACL_STREAM_FAST_LAUNCH)
    gate = Gate(stream)
    while stream._runner is None:  # until the gate runs
        pass
    assert small.run(stream) == 0
    assert acl.aclrtRecordEvent(event, stream) == 0
    assert acl.aclrtStreamWaitEvent(second, event) == 0
    threading.Timer(0.05, gate.open).start()
    assert acl.aclrtDestroyStreamForce(stream) == 0
    assert (acl.tensor_to_numpy(small.out) == 0).all()
    assert acl.aclrtSynchronizeStream(second) == 0, "a wait for a dropped event ends"
    assert acl.aclrtDestroyStreamForce(stream) == RT_INVALID


# Workspaces.


def test_a_workspace_size_larger_than_its_block_is_a_finding(monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setenv("POOLTIDE_BACKEND", "reference")
    kernel, padding = acl.aclCreateIntArray([3, 5]), acl.aclCreateIntArray([0])

    def executor() -> Any:
        grad = acl.tensor_from_numpy(np.ones((2, 1, 1), np.float32), acl.ACL_FORMAT_NCL)
        out = acl.tensor_from_numpy(np.ones((2, 3, 5), np.float32), acl.ACL_FORMAT_NCL)
        size, made, ret = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
            grad, out, kernel, None, padding, False, True, 0, 3, out
        )
        assert ret == 0 < size
        return size, made

    size, made = executor()
    workspace = _device(size + 3, None)
    for level, status in (("warn", 0), ("strict", BAD)):
        acl.set_checks(level)
        _, made = executor()
        assert aclnn.aclnnAvgPool2dBackward(workspace, size + 4, made, None) == status
        assert acl.aclrtSynchronizeStream(None) == 0
        text = said() if status else capfd.readouterr().err
        assert (
            f"workspaceSize is {size + 4}; it must be at most the {size + 3} bytes that the block has" in text
        )
    assert aclnn.aclnnAvgPool2dBackward(workspace, size + 3, executor()[1], None) == 0
    stream, _ = acl.aclrtCreateStream()
    assert aclnn.aclnnAvgPool2dBackward(workspace, size, executor()[1], stream) == 361001
    assert "memory that aclnnAvgPool2dBackward writes (workspace)" in said()


# Tensors, executors, values.


def test_getters() -> None:
    tensor = acl.aclCreateTensor([2, 3], acl.ACL_FLOAT16, [8, 2], 5, acl.ACL_FORMAT_ND, [4, 9], 4096)
    assert acl.aclGetViewShape(tensor) == ((2, 3), 0)
    assert acl.aclGetViewStrides(tensor) == ((8, 2), 0)
    assert acl.aclGetStorageShape(tensor) == ((4, 9), 0)
    assert acl.aclGetViewOffset(tensor) == (5, 0)
    assert acl.aclGetFormat(tensor) == (acl.ACL_FORMAT_ND, 0)
    assert acl.aclGetDataType(tensor) == (acl.ACL_FLOAT16, 0)
    assert acl.aclGetRawTensorAddr(tensor) == (4096, 0)
    assert acl.aclSetRawTensorAddr(tensor, 8192) == 0
    assert acl.aclGetRawTensorAddr(tensor) == (8192, 0)
    assert acl.aclSetRawTensorAddr(tensor, "x") == BAD
    assert acl.aclInitTensor(tensor, [7], acl.ACL_INT32, None, 0, acl.ACL_FORMAT_NCHW, [7], None) == 0
    assert acl.aclGetViewShape(tensor) == ((7,), 0)
    assert acl.aclGetRawTensorAddr(tensor) == (None, 0)
    for change, sentence in (
        ({"viewDims": [-7]}, "viewDims is [-7]; none must be negative"),
        ({"stride": [-1]}, "stride is [-1]; none must be negative"),
        ({"offset": -1}, "offset is [-1]; none must be negative"),
        ({"stride": [1, 2]}, "stride is [1, 2]; it must be null or 1 ints"),
        ({"tensorDataAddr": "x"}, "tensorDataAddr is a str"),
        ({"tensor": None}, "tensor is null"),
    ):
        good = {"tensor": tensor, "viewDims": [7], "dataType": 0, "stride": None, "offset": 0, "format": 2}
        assert acl.aclInitTensor(**(good | {"storageDims": [7], "tensorDataAddr": None} | change)) != 0
        assert sentence in said()
    assert acl.aclDestroyTensor(tensor) == 0
    for name in (
        "ViewShape",
        "ViewStrides",
        "StorageShape",
        "ViewOffset",
        "Format",
        "DataType",
        "RawTensorAddr",
    ):
        call = getattr(acl, f"aclGet{name}")
        assert call(None)[-1] == NULL
        assert call(tensor)[-1] == BAD
        assert "tensor was destroyed" in said()


@pytest.mark.parametrize("spelled", ["aclSet", "AclSet"])
def test_a_repeatable_executor_with_new_addresses(spelled: str, streams: Any) -> None:
    acl.set_checks("strict")
    stream, _ = streams
    small = Small()
    executor = small.plan()
    assert acl.aclSetAclOpExecutorRepeatable(executor) == 0
    inputs = [small.host * n for n in (1, 2, 3)]
    results = [_device(280) for _ in inputs]
    gate = Gate(stream)  # all calls are queued before the first runs, so each must keep its addresses
    for values, result in zip(inputs, results, strict=True):
        given = acl.tensor_from_numpy(values)
        assert getattr(acl, f"{spelled}InputTensorAddr")(executor, 0, small.grad, given.address) == 0
        assert getattr(acl, f"{spelled}TensorAddr")(executor, 2, small.out, result) == 0
        assert aclnn.aclnnAdaptiveAvgPool3dBackward(None, 0, executor, stream) == 0
    gate.open()
    assert acl.aclrtSynchronizeStream(stream) == 0
    back = np.zeros((3, 2, 1, 5, 7), np.float32)
    for n, result in enumerate(results):
        assert acl.aclrtMemcpy(back[n], 280, result, 280, D2H) == 0
    np.testing.assert_allclose(back[1:], [back[0] * 2, back[0] * 3], rtol=1e-6)
    assert back[0].any()
    assert getattr(acl, f"{spelled}OutputTensorAddr")(executor, 0, small.out, results[0]) == 0
    for call in (acl.aclSetTensorAddr, acl.aclSetInputTensorAddr, acl.aclSetOutputTensorAddr):
        assert call(None, 0, small.grad, 0) == INNER_NULL
        assert call(executor, 0, None, 0) == INNER_NULL
        said()
        assert call(executor, 3, small.grad, 0) == BAD
        assert "index is 3; it must be 0 to" in said()
    assert acl.aclSetTensorAddr(executor, 0, small.out, results[0]) == BAD
    assert "it must have the shape, strides, dtype and format of gradOutput in phase one" in said()
    tensors = acl.aclCreateTensorList([small.grad])
    for name in ("Tensor", "InputTensor", "OutputTensor"):
        dynamic = getattr(acl, f"aclSetDynamic{name}Addr")
        assert dynamic(None, 0, 0, tensors, 0) == INNER_NULL == dynamic(executor, 0, 0, None, 0)
        assert dynamic(executor, 0, 0, tensors, 0) == BAD
        assert "takes no list of tensors" in said()
    assert acl.aclDestroyAclOpExecutor(executor) == 0
    assert acl.aclSetTensorAddr(executor, 0, small.grad, 0) == BAD


def test_a_tensor_that_changes_after_phase_one_changes_no_call(streams: Any) -> None:
    small = Small()
    executor = small.plan()
    assert acl.aclInitTensor(small.out, [3], acl.ACL_INT8, None, 0, acl.ACL_FORMAT_ND, [3], 4096) == 0
    assert aclnn.aclnnAdaptiveAvgPool3dBackward(None, 0, executor, streams[0]) == 0
    assert acl.aclrtSynchronizeStream(streams[0]) == 0
    assert acl.aclDestroyTensor(small.out) == 0


def test_a_tensor_that_another_thread_changes_during_phase_one(
    streams: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that is checked and planned is the one that runs."""
    small = Small()

    def change() -> None:
        monkeypatch.undo()
        assert acl.aclInitTensor(small.grad, [3], acl.ACL_INT8, None, 0, acl.ACL_FORMAT_ND, [3], 4096) == 0

    monkeypatch.setattr(pool_jobs, "backend_setting", change)
    executor = small.plan()
    assert acl.aclGetViewShape(small.grad) == ((3,), 0)
    assert aclnn.aclnnAdaptiveAvgPool3dBackward(None, 0, executor, streams[0]) == 0
    assert acl.aclrtSynchronizeStream(streams[0]) == 0, said()


def test_a_raw_address_changes_no_queued_call(streams: Any) -> None:
    stream, _ = streams
    small, other = Small(), _device(280)
    before = small.out.address
    gate = Gate(stream)
    assert small.run(stream) == 0
    assert acl.aclSetRawTensorAddr(small.out, other) == 0
    gate.open()
    assert acl.aclrtSynchronizeStream(stream) == 0
    assert (acl.tensor_to_numpy(small.out) == 0).all()
    assert acl.aclSetRawTensorAddr(small.out, before) == 0
    assert (acl.tensor_to_numpy(small.out) != 0).any()


def test_values_and_lists() -> None:
    scalar = acl.aclCreateScalar(2.5, acl.ACL_FLOAT16)
    assert scalar is not None
    assert (scalar.value, str(scalar)) == (2.5, "<aclScalar FLOAT16 2.5>")
    for value, dtype in ((None, 0), ("x", 0), ([1], 0), (1, 99), (1, None)):
        assert acl.aclCreateScalar(value, dtype) is None
        assert "; it must" in said()
    floats, bools = acl.aclCreateFloatArray([0.1, 2]), acl.aclCreateBoolArray([True, False])
    assert acl.aclGetFloatArraySize(floats) == (2, 0) == acl.aclGetBoolArraySize(bools)
    assert floats is not None
    assert floats.values[0] == np.float32(0.1)
    assert acl.aclCreateFloatArray(["x"]) is None is acl.aclCreateBoolArray([2])
    assert acl.aclCreateFloatArray(None) is None
    tensor = acl.aclCreateTensor([1], 0, None, 0, 2, [1], None)
    tensors, scalars = acl.aclCreateTensorList([tensor]), acl.aclCreateScalarList([scalar])
    assert acl.aclGetTensorListSize(tensors) == (1, 0) == acl.aclGetScalarListSize(scalars)
    assert acl.aclGetIntArraySize(acl.aclCreateIntArray([1, 2, 3])) == (3, 0)
    assert acl.aclGetIntArraySize(None) == (0, NULL)
    assert acl.aclCreateTensorList([tensor, None]) is None
    assert "value[1] is null; it must be a live aclTensor of aclCreateTensor" in said()
    assert acl.aclDestroyTensorList(tensors) == 0 == acl.aclDestroyScalarList(scalars)
    assert acl.aclDestroyTensor(tensor) == BAD
    assert "tensor was destroyed" in said()
    assert acl.aclDestroyScalar(scalar) == BAD
    assert acl.aclDestroyTensorList(tensors) == BAD
    assert acl.aclDestroyFloatArray(floats) == 0 == acl.aclDestroyBoolArray(bools)
    assert acl.aclDestroyFloatArray(bools) == BAD


def test_numbers(capfd: Any) -> None:
    assert [acl.aclDataTypeSize(code) for code in (0, 1, 9, 12, 16, 17, 29, 99, -1)] == [
        4,
        2,
        8,
        1,
        8,
        16,
        0,
        0,
        0,
    ]
    assert acl.aclDataTypeSize("x") == 0
    assert acl.aclFloat16ToFloat(0x3E00) == 1.5
    assert acl.aclFloatToFloat16(-65504.0) == 0xFBFF
    assert acl.aclFloatToFloat16(1e9) == 0x7C00
    acl.aclAppLog(acl.ACL_INFO, "main", "a.cpp", 7, "x is %d", 3)
    assert capfd.readouterr().err == "pooltide: [INFO] a.cpp:7 main: x is 3\n"
    acl.aclAppLog(acl.ACL_INFO, "main", "a.cpp", 7, "x is %d")
    assert "x is %d" in capfd.readouterr().err
    acl.aclAppLog(9, "main", "a.cpp", 7, "x")
    assert "logLevel is 9" in said()


# Findings.


def test_a_finding_names_lines_of_python_and_equal_ones_are_counted(capfd: Any) -> None:
    acl.set_checks("warn")
    back = np.zeros(4, np.uint8)
    for _ in range(3):
        block, _ = acl.aclrtMalloc(4, 0)
        acl.aclrtMemcpy(back, 4, block, 4, D2H)
        acl.aclrtFree(block)
    here = "test_a_finding_names_lines_of_python_and_equal_ones_are_counted"
    (line,) = capfd.readouterr().err.splitlines()
    assert re.search(rf" At tests/acl/test_runtime\.py:\d+ in {here}, called at ", line)
    assert re.search(rf" The memory was taken at tests/acl/test_runtime\.py:\d+ in {here}, called at ", line)
    assert acl.aclFinalize() == 0
    (times,) = capfd.readouterr().err.splitlines()
    assert times == line.replace("pooltide: ", "pooltide: 3 times: ")


def test_a_python_program_writes_its_report(tmp_path: Any) -> None:
    code = """
from pooltide import acl
acl.aclInit(None)
acl.aclrtSetDevice(0)
block, _ = acl.aclrtMalloc(4, 0)
for _ in range(2):
    acl.aclrtMemcpy(bytearray(4), 4, block, 4, 2)
acl.aclrtFree(7)
"""
    report = tmp_path / "report.json"
    environment = os.environ | {"POOLTIDE_REPORT": str(report)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    first, second = json.loads(report.read_text())["findings"]
    assert (first["count"], first["lines"]) == (2, ["<string>:7"])
    assert second["message"].startswith("aclrtFree: devPtr is 0x7")


def test_registered_memory_ends_by_its_own_call(capsys: pytest.CaptureFixture[str]) -> None:
    pages = np.zeros(3 * 4096, np.uint8)
    host = -(-pages.ctypes.data // 4096) * 4096
    assert acl.aclrtHostUnregister(host) == RT_INVALID
    assert f"ptr is {host:#x}; it must be an address that was registered" in said()
    mapped, ret = acl.aclrtHostRegister(host, 4096, 0)
    assert ret == 0
    assert acl.aclrtFree(mapped) == RT_INVALID
    assert "an address of aclrtHostRegister; it must be ended by aclrtHostUnregister" in said()
    assert acl.aclrtHostRegister(host, 4096, 0)[1] == RT_INVALID
    assert acl.aclrtHostUnregister(host) == 0
    mapped, ret = acl.aclrtHostRegister(host, 4096, 0)
    assert ret == 0
    assert acl.aclFinalize() == acl.aclInit(None) == acl.aclrtSetDevice(0) == 0
    assert acl.aclrtHostUnregister(host) == RT_INVALID
    assert acl.aclrtHostRegister(host, 4096, 0)[1] == acl.aclrtHostUnregister(host) == 0
    pinned, _ = acl.aclrtMallocHost(8)
    assert acl.aclrtHostRegister(pinned, 8, 0)[1] == 0
    assert acl.aclrtFreeHost(pinned) == 0
    assert "is registered; call aclrtHostUnregister first" in capsys.readouterr().err


def test_registered_memory_is_copied_as_what_it_was(streams: Any) -> None:
    """CANN's pages call registered memory page-locked only if aclrtMallocHost gave it out."""
    pages = np.zeros(3 * 4096, np.uint8)
    host = -(-pages.ctypes.data // 4096) * 4096
    assert acl.aclrtHostRegister(host, 4096, 0)[1] == 0
    assert acl.aclrtMemcpyAsync(host, 8, _device(8, 7), 8, D2H, streams[0]) == 0
    assert pages[host - pages.ctypes.data] == 7
    assert acl.aclrtHostUnregister(host) == 0
