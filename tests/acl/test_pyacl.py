"""pyACL's spelling of the runtime: the same functions under the names of CANN's Python interface."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from pooltide import acl, aclnn
from pooltide.acl import callbacks

HUGE_FIRST, TO_DEVICE, TO_HOST = 0, 1, 2
FLOAT32 = 11  # NumPy's number


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    acl.init()
    assert acl.rt.set_device(0) == 0
    yield
    assert acl.rt.reset_device(0) == 0
    acl.finalize()


def test_a_program_of_pyacl_runs_an_operator() -> None:
    gradient = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 1, 1, 2)
    stream, ret = acl.rt.create_stream()
    assert ret == 0
    addresses = []
    for size in (32, 64):
        address, ret = acl.rt.malloc(size, HUGE_FIRST)
        assert ret == 0
        addresses.append(address)
    assert acl.rt.memcpy(addresses[0], 32, acl.util.numpy_to_ptr(gradient), 32, TO_DEVICE) == 0
    grad = acl.aclCreateTensor(gradient.shape, 0, None, 0, acl.ACL_FORMAT_ND, gradient.shape, addresses[0])
    shape = (2, 2, 1, 1, 4)
    out = acl.aclCreateTensor(shape, 0, None, 0, acl.ACL_FORMAT_ND, shape, addresses[1])
    size, executor, ret = aclnn.aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad, out, out)
    assert (size, ret) == (0, 0)
    assert aclnn.aclnnAdaptiveAvgPool3dBackward(None, 0, executor, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    host, ret = acl.rt.malloc_host(64)
    assert ret == 0
    assert acl.rt.memcpy(host, 64, addresses[1], 64, TO_HOST) == 0
    expected = np.repeat(gradient.reshape(-1) / 2, 2)
    assert (acl.util.ptr_to_numpy(host, (16,), FLOAT32) == expected).all()
    assert (np.frombuffer(acl.util.ptr_to_bytes(host, 64), np.float32) == expected).all()
    assert [acl.rt.free(address) for address in addresses] == [0, 0]
    assert (acl.rt.free_host(host), acl.rt.destroy_stream(stream)) == (0, 0)


def test_every_runtime_function_has_its_name_in_rt() -> None:
    assert acl.rt.memcpy_async is acl.aclrtMemcpyAsync
    assert acl.rt.memcpy2d is acl.aclrtMemcpy2d
    assert acl.rt.set_context is acl.aclrtSetCurrentContext
    assert acl.rt.get_device_count() == (1, 0)
    assert acl.rt.get_run_mode() == (1, 0)
    assert acl.get_soc_name() == acl.aclrtGetSocName()
    assert acl.rt.malloc(0, HUGE_FIRST)[1] != 0
    assert "size is 0" in (acl.get_recent_err_msg() or "")


def test_names_that_are_not_here_say_so() -> None:
    with pytest.raises(AttributeError, match=r"acl\.mdl is a part of pyACL that is not here"):
        acl.mdl.load_from_file("model.om")
    with pytest.raises(AttributeError, match=r"acl\.rt\.set_group is no function that pooltide has"):
        acl.rt.set_group(0)
    assert not hasattr(acl, "nothing")


def test_addresses_that_no_host_has_are_refused() -> None:
    address, _ = acl.rt.malloc(4, HUGE_FIRST)
    for ptr, size in ((address, 4), (0, 1), (8, 8), ("x", 1), (2**70, 1), (1, -1), (8, 2**62)):
        with pytest.raises(ValueError, match="ptr_to_bytes: "):
            acl.util.ptr_to_bytes(ptr, size)
    for shape, kind in (((1,), 17), ((1,), 99), ((-1,), FLOAT32), (("a",), FLOAT32)):
        with pytest.raises(ValueError, match="ptr_to_numpy: "):
            acl.util.ptr_to_numpy(8, shape, kind)
    with pytest.raises(TypeError):
        acl.util.numpy_to_ptr([1])
    with pytest.raises(ValueError, match="contiguous"):
        acl.util.numpy_to_ptr(np.zeros((4, 4))[:, ::2])
    with pytest.raises(TypeError):
        acl.util.bytes_to_ptr("text")  # type: ignore[arg-type]
    text = b"bytes"
    assert acl.util.ptr_to_bytes(acl.util.bytes_to_ptr(text), 5) == text
    acl.rt.free(address)


def test_a_thread_gets_the_callbacks_of_its_streams() -> None:
    seen: list[object] = []
    stream, _ = acl.rt.create_stream()
    stop = threading.Event()

    def report(arguments: list[object]) -> None:
        acl.rt.set_device(0)
        while not stop.is_set():
            acl.rt.process_report(20)

    thread, ret = acl.util.start_thread(report, [])
    assert ret == 0
    assert acl.rt.subscribe_report(thread, stream) == 0
    assert acl.rt.launch_callback(seen.append, "first", 1, stream) == 0
    assert acl.rt.launch_callback(seen.append, "second", 0, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert seen[:1] == ["first"]  # the stream waited for it
    assert acl.rt.unsubscribe_report(thread, stream) == 0
    stop.set()
    assert acl.util.stop_thread(thread) == 0
    assert acl.rt.launch_callback(seen.append, "third", 0, stream) == 107015
    assert acl.rt.destroy_stream(stream) == 0


def test_a_wait_that_never_ends_is_refused() -> None:
    """A stream waits for a callback, and the only thread that may call it waits for the stream."""
    block, _ = acl.rt.malloc(8, HUGE_FIRST)
    host = np.zeros(8, np.uint8)
    stream, other = (acl.rt.create_stream()[0] for _ in range(2))
    event, _ = acl.rt.create_event()
    statuses: dict[str, int] = {}

    def waits(name: str) -> None:
        statuses[f"{name} stream"] = acl.rt.synchronize_stream(stream)
        text = f"aclrtSynchronizeStream: {stream} waits for a callback of aclrtLaunchCallback, which this"
        assert (acl.get_recent_err_msg() or "").startswith(text)
        statuses[f"{name} other stream"] = acl.rt.synchronize_stream(other)
        statuses[f"{name} event"] = acl.rt.synchronize_event(event)
        statuses[f"{name} device"] = acl.rt.synchronize_device()
        statuses[f"{name} copy"] = acl.rt.memcpy_async(block, 8, host, 8, TO_DEVICE, stream)
        statuses[f"{name} destroy"] = acl.rt.destroy_stream(stream)
        statuses[f"{name} unsubscribe"] = acl.rt.unsubscribe_report(thread, stream)
        statuses[f"{name} timeout"] = acl.rt.synchronize_stream_with_timeout(stream, 5)

    thread = threading.get_ident()
    assert acl.rt.subscribe_report(thread, stream) == 0
    assert acl.rt.launch_callback(waits, "inside", 1, stream) == 0
    assert acl.rt.record_event(event, stream) == acl.rt.stream_wait_event(other, event) == 0
    waits("before")
    assert acl.rt.process_report(-1) == 0
    timeout = statuses.pop("before timeout"), statuses.pop("inside timeout")
    assert timeout == (107020, 107020)
    assert set(statuses.values()) == {107000}, statuses
    assert len(statuses) == 14
    assert acl.rt.synchronize_stream(other) == 0
    assert acl.rt.unsubscribe_report(thread, stream) == 0
    assert [acl.rt.destroy_stream(each) for each in (stream, other)] == [0, 0]
    acl.rt.destroy_event(event)
    acl.rt.free(block)


def test_a_stream_that_waits_for_a_thread_that_does_not_come_says_so(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "_PATIENCE", 0.1)
    stream, _ = acl.rt.create_stream()
    assert acl.rt.subscribe_report(12345, stream) == 0
    assert acl.rt.launch_callback(print, None, 1, stream) == 0
    assert acl.rt.synchronize_stream_with_timeout(stream, 500) == 107020
    assert acl.aclrtDestroyStreamForce(stream) == 0
    line = (
        "waits for a callback: thread 12345, which aclrtSubscribeReport named, must call aclrtProcessReport."
    )
    (said,) = capfd.readouterr().err.splitlines()
    assert line in said
    assert "It was launched at tests/acl/test_pyacl.py:" in said
