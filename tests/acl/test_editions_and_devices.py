"""What differs between editions of CANN, and devices with their own memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pooltide import acl
from pooltide.acl.state import STATE

pytestmark = pytest.mark.usefixtures("runtime")

INVALID, RT_INVALID, CONTEXT = 100000, 107000, 107002


def test_editions_take_what_they_know() -> None:
    deterministic, debug, strong = 0, 1, 2
    a, _ = acl.aclrtMalloc(8, 0)
    b, _ = acl.aclrtMalloc(8, 0)
    acl.aclrtMemset(a, 8, 1, 8)
    takes = {
        "6.3": (INVALID, INVALID, INVALID, INVALID, INVALID, INVALID),
        "8.0": (INVALID, 0, INVALID, 0, INVALID, INVALID),
        "8.2": (INVALID, 0, INVALID, 0, 0, INVALID),
        "8.5": (INVALID, 0, 0, 0, 0, INVALID),
        "9.0": (INVALID, 0, 0, 0, 0, 0),
        "9.2": (0, 0, 0, 0, 0, 0),
    }
    for edition, expected in takes.items():
        acl.set_edition(edition)
        statuses = (
            acl.aclrtSetSysParamOpt(deterministic, 3),
            acl.aclrtSetSysParamOpt(debug, 1),
            acl.aclrtSetSysParamOpt(strong, 1),
            acl.aclrtMemcpy(b, 8, a, 8, 4),
            acl.aclrtMemcpy(b, 8, a, 8, 6),
            acl.aclrtGetMemInfo(12)[-1],
        )
        assert statuses == expected, edition
    assert acl.get_edition() == "9.2"
    with pytest.raises(ValueError, match="set_edition: edition is '9'; it must be one of"):
        acl.set_edition("9")


def test_a_file_chooses_the_edition(tmp_path: Path) -> None:
    acl.aclFinalize()
    path = tmp_path / "acl.json"
    path.write_text('{"edition": "8.1", "product": "none"}')
    assert acl.aclInit(str(path)) == INVALID
    assert acl.get_edition() == "9.2"
    path.write_text('{"edition": "8.1"}')
    assert acl.aclInit(str(path)) == 0
    assert acl.get_edition() == "8.1"


def test_ordinary_memory_is_reported_before_8_5() -> None:
    acl.set_checks("strict")
    block, _ = acl.aclrtMalloc(8, 0)
    host = np.ones(8, np.uint8)
    assert acl.aclrtMemcpyAsync(block, 8, host, 8, 1, None) == 0
    acl.set_edition("8.3")
    assert acl.aclrtMemcpyAsync(block, 8, host, 8, 1, None) != 0
    assert "src is" in (message := acl.aclGetRecentErrMsg() or "")
    assert "in CANN 8.3 it must be memory of aclrtMallocHost" in message
    pinned, _ = acl.aclrtMallocHost(8)
    assert acl.aclrtMemcpyAsync(block, 8, pinned, 8, 1, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 0


def test_each_device_has_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    STATE.devices = 2
    assert acl.aclrtGetDeviceCount() == (2, 0)
    first, _ = acl.aclrtMalloc(8, 0)
    acl.aclrtMemset(first, 8, 1, 8)
    assert acl.aclrtSetDevice(1) == 0
    assert acl.aclrtGetDevice() == (1, 0)
    second, _ = acl.aclrtMalloc(8, 0)
    acl.set_checks("strict")
    assert acl.aclrtMemcpy(second, 8, first, 8, 3) != 0
    assert acl.aclrtFree(first) != 0
    assert acl.aclrtMemset(first, 8, 1, 8) != 0
    assert acl.aclrtMemsetAsync(first, 8, 1, 8, None) != 0
    assert f"devPtr is {first:#x}, memory of device 0, and this thread uses device 1" in (
        acl.aclGetRecentErrMsg() or ""
    )
    assert acl.aclrtDeviceEnablePeerAccess(0, 0) == 0
    assert acl.aclrtMemcpy(second, 8, first, 8, 3) == 0
    assert acl.aclrtDeviceDisablePeerAccess(0) == 0
    assert acl.aclrtMemcpy(second, 8, first, 8, 3) != 0
    assert acl.aclrtSetDevice(2) == 107001
    assert capsys.readouterr().err == ""


def test_a_device_is_reset_as_often_as_it_was_set() -> None:
    assert acl.aclrtSetDevice(0) == 0
    assert acl.aclrtResetDevice(0) == 0
    assert acl.aclrtMalloc(8, 0)[1] == 0
    assert acl.aclrtResetDevice(0) == 0
    assert acl.aclrtMalloc(8, 0)[1] == CONTEXT
    for _ in range(3):
        acl.aclrtSetDevice(0)
    assert acl.aclrtResetDeviceForce(0) == 0
    assert acl.aclrtMalloc(8, 0)[1] == CONTEXT


@pytest.mark.parametrize("reset", [acl.aclrtResetDevice, acl.aclrtResetDeviceForce])
def test_a_device_that_is_not_set_is_not_reset(reset: Callable[[int], int]) -> None:
    assert reset(0) == 0
    assert reset(0) == CONTEXT
    assert "deviceId is 0, a device that is not set" in (acl.aclGetRecentErrMsg() or "")


@pytest.mark.parametrize("reset", [acl.aclrtResetDevice, acl.aclrtResetDeviceForce])
def test_a_reset_ends_the_default_context_and_its_streams(
    reset: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    context, _ = acl.aclrtGetCurrentContext()
    stream, _ = acl.aclrtCreateStream()
    block, _ = acl.aclrtMalloc(8, 0)
    threads = threading.active_count()
    for _ in range(3):
        assert acl.aclrtMemsetAsync(block, 8, 1, 8, None) == 0  # which makes the default stream
        assert reset(0) == acl.aclrtSetDevice(0) == 0
    assert threading.active_count() <= threads
    assert acl.aclrtSynchronizeStream(stream) == RT_INVALID
    assert acl.aclrtMemsetAsync(block, 8, 1, 8, stream) == RT_INVALID
    assert "which aclrtResetDevice has released; it must be a new stream" in (acl.aclGetRecentErrMsg() or "")
    assert acl.aclrtSetCurrentContext(context) == RT_INVALID
    assert "context is of device 0, which was reset" in (acl.aclGetRecentErrMsg() or "")
    assert acl.aclrtDestroyStream(stream) == 0
    assert "aclrtDestroyStream: it was called after aclrtResetDevice" in capsys.readouterr().err


def test_a_thread_that_chose_no_device_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    statuses = []

    def allocate() -> None:
        statuses.extend(acl.aclrtMalloc(8, 0)[1] for _ in range(2))

    for level in ("warn", "strict"):
        acl.set_checks(level)
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
    assert statuses == [0, 0, CONTEXT, CONTEXT]
    assert capsys.readouterr().err.count("this thread called neither aclrtSetDevice nor") == 1
