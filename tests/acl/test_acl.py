"""The runtime: every function with good and bad arguments. A bad call gives a status and a message."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calls import said
from pooltide import acl
from pooltide.acl.stream_queue import Job, Stream

INVALID, UNINITIALIZED, RT_INVALID = 100000, 100001, 107000
BAD = 161002


def _calls(stream: Any = None) -> dict[str, Any]:
    """A call of each function, which returns the status."""
    return {
        "aclrtSetDevice": lambda: acl.aclrtSetDevice(0),
        "aclrtResetDevice": lambda: acl.aclrtResetDevice(0),
        "aclrtCreateStream": lambda: acl.aclrtCreateStream()[-1],
        "aclrtDestroyStream": lambda: acl.aclrtDestroyStream(stream),
        "aclrtSynchronizeStream": lambda: acl.aclrtSynchronizeStream(stream),
        "aclrtMalloc": lambda: acl.aclrtMalloc(8, 0)[-1],
        "aclrtFree": lambda: acl.aclrtFree(64),
        "aclrtMemcpy": lambda: acl.aclrtMemcpy(64, 1, np.zeros(1, np.uint8), 1, 1),
        "aclrtCtxSetSysParamOpt": lambda: acl.aclrtCtxSetSysParamOpt(0, 1),
        "aclrtCtxGetSysParamOpt": lambda: acl.aclrtCtxGetSysParamOpt(0)[-1],
    }


@pytest.mark.parametrize("name", _calls())
def test_after_finalize_there_is_a_status(name: str) -> None:
    assert acl.aclInit(None) == 0 == acl.aclrtSetDevice(0)
    stream, _ = acl.aclrtCreateStream()
    assert acl.aclFinalize() == 0
    assert _calls(stream)[name]() == UNINITIALIZED
    assert "after aclFinalize; call aclInit first" in said()


def test_objects_after_finalize() -> None:
    assert acl.aclInit(None) == 0 == acl.aclFinalize()
    assert acl.aclCreateTensor([1], acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_ND, [1], None) is None
    assert "call aclInit first" in said()
    assert acl.aclCreateIntArray([1]) is None
    assert "call aclInit first" in said()
    for destroy in (acl.aclDestroyTensor, acl.aclDestroyIntArray, acl.aclDestroyAclOpExecutor):
        assert destroy(None) == 361001
        assert "call aclInit first" in said()
    with pytest.raises(RuntimeError, match="call aclInit first"):
        acl.tensor_from_numpy(np.zeros(3, np.float32))


def test_init_and_finalize_come_in_pairs() -> None:
    assert acl.aclInit(None) == 0
    assert acl.aclInit(None) == 100002
    assert "called before; call aclFinalize first" in said()
    assert acl.aclFinalize() == 0
    assert acl.aclFinalize() == 100037
    assert "called before; call aclInit first" in said()
    assert acl.aclInit(None) == 0
    assert acl.aclFinalize() == 0


@pytest.mark.usefixtures("settings")
def test_a_config_file_sets_product_and_checks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "acl.json"
    path.write_text(json.dumps({"product": "atlas-a3", "checks": "strict", "dump": {}}))
    assert acl.aclInit(str(path)) == 0
    assert (acl.get_product(), acl.get_checks()) == ("atlas-a3", "strict")
    assert "sets dump, which pooltide does not know and ignores" in capfd.readouterr().err


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"product": "atlas-b7"}', "product is 'atlas-b7'; it must be one of"),
        ('{"product": "host"}', "product is 'host'"),
        ('{"checks": "maybe"}', "level is 'maybe'; it must be one of off, warn, strict"),
        ('{"product": ["atlas-a2"]}', "product is ['atlas-a2']"),
        ('{"product": ', "can't be read as JSON"),
        ("[1]", "holds no JSON object"),
        ("\x00\xff", "can't be read as JSON"),
    ],
)
def test_a_bad_config_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "acl.json"
    path.write_bytes(text.encode("latin-1"))
    assert acl.aclInit(str(path)) == INVALID
    assert sentence in said()
    assert acl.aclInit(str(tmp_path / "absent.json")) == INVALID
    assert "can't be read" in said()
    assert acl.aclInit(7) == INVALID  # type: ignore[arg-type]  # open(7) would open a descriptor
    assert "configPath is an int, 7" in said()


@pytest.mark.parametrize("name", ["POOLTIDE_PRODUCT", "POOLTIDE_CHECKS"])
def test_the_environment_is_read_at_the_start(name: str) -> None:
    code = "from pooltide import acl; print(acl.get_product(), acl.get_checks(), acl.aclInit(None)); print(acl.aclGetRecentErrMsg())"
    for value, good in ((("atlas-a3" if "PROD" in name else "strict"), True), ("nonsense", False)):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {name: value},
            capture_output=True,
            text=True,
            check=True,
        )
        assert (value in run.stdout.splitlines()[0]) == good
        assert run.stdout.splitlines()[0].endswith(" 0" if good else f" {INVALID}")
        assert good or f"the environment has {name}=nonsense" in run.stdout


def test_product_and_checks_have_setters_that_raise() -> None:
    with pytest.raises(ValueError, match="set_product: product is 'x'; it must be one of ascend950"):
        acl.set_product("x")
    for chip, family in {
        "Ascend910B1": "atlas-a2",
        "Ascend310P3": "atlas-inference",
        "Ascend910_9392": "atlas-a3",
    }.items():
        acl.set_product(chip)
        assert (acl.get_product(), acl.aclrtGetSocName()) == (family, chip)
    acl.set_product("atlas-a2")
    assert acl.aclrtGetSocName() == "Ascend910B1"
    with pytest.raises(ValueError, match="set_checks: level is 'x'"):
        acl.set_checks("x")


@pytest.mark.usefixtures("runtime")
class TestRunning:
    def test_devices(self) -> None:
        for device in (1, -1, "0", None, 2**40):
            assert acl.aclrtSetDevice(device) == 107001
            assert "it must be 0" in said()

    def test_memory_has_bounds(self) -> None:
        address, status = acl.aclrtMalloc(10, acl.ACL_MEM_MALLOC_HUGE_FIRST)
        assert status == 0
        data = np.arange(10, dtype=np.uint8)
        h2d, d2h = acl.ACL_MEMCPY_HOST_TO_DEVICE, acl.ACL_MEMCPY_DEVICE_TO_HOST
        assert acl.aclrtMemcpy(address, 10, data, 10, h2d) == 0
        back = np.zeros(4, np.uint8)
        assert acl.aclrtMemcpy(back, 4, address + 6, 4, d2h) == 0
        assert back.tolist() == [6, 7, 8, 9]
        assert acl.aclrtMemcpy(back, 4, address + 7, 4, d2h) == RT_INVALID
        assert "src is" in (message := said())
        assert "7 bytes into a block of 10 bytes" in message
        assert "and the call needs 4 bytes" in message
        assert acl.aclrtMemcpy(address, 11, np.zeros(11, np.uint8), 11, h2d) == RT_INVALID
        assert "dst is" in said()
        assert acl.aclrtMemcpy(address - 1, 1, data, 1, h2d) == RT_INVALID
        assert "in no block that aclrtMalloc gave out" in said()
        assert acl.aclrtFree(address + 1) == RT_INVALID
        assert "it must be the start of a block" in said()
        assert acl.aclrtFree(address) == 0
        assert acl.aclrtFree(address) == RT_INVALID
        assert "that was freed" in said()
        assert acl.aclrtMemcpy(back, 4, address, 4, d2h) == RT_INVALID
        assert "that was freed" in said()

    def test_copies_between_device_and_device_and_host_and_host(self) -> None:
        data = np.arange(8, dtype=np.uint8)
        a, b = (acl.aclrtMalloc(8, 0)[0] for _ in range(2))
        assert acl.aclrtMemcpy(a, 8, data.ctypes.data, 8, 1) == 0  # a host address, as in C
        assert acl.aclrtMemcpy(b, 8, a, 8, acl.ACL_MEMCPY_DEVICE_TO_DEVICE) == 0
        assert acl.aclrtMemcpy(b + 2, 6, b, 6, acl.ACL_MEMCPY_DEVICE_TO_DEVICE) == 0  # overlapping
        back = np.zeros(8, np.uint8)
        assert acl.aclrtMemcpy(back, 8, b, 8, 2) == 0
        assert back.tolist() == [0, 1, 0, 1, 2, 3, 4, 5]
        other = np.zeros(8, np.uint8)
        assert acl.aclrtMemcpy(other, 8, back, 8, acl.ACL_MEMCPY_HOST_TO_HOST) == 0
        assert other.tolist() == back.tolist()

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"kind": 9}, "kind is 9; it must be one of ACL_MEMCPY_HOST_TO_HOST (0)"),
            ({"count": -1}, "count is -1; it must be an int of at least 0"),
            ({"count": 9, "destMax": 8}, "count is 9; it must be at most destMax, 8"),
            ({"count": 1.5}, "count is 1.5"),
            ({"destMax": None}, "destMax is None"),
            ({"src": None}, "src is null; it must be a NumPy array or an address"),
            ({"src": "bytes"}, "src is a str"),
            ({"src": np.zeros(4, np.uint8)}, "src is an array of 4 bytes; the call needs 8 bytes"),
            ({"src": np.zeros((4, 4), np.uint8)[:, ::2]}, "src is an array with strides"),
            ({"dst": None}, "dst is null; it must be a device address"),
            (
                {"dst": np.zeros(8, np.uint8)},
                "kind must be ACL_MEMCPY_HOST_TO_HOST, or dst must be device memory",
            ),
            ({"dst": -5}, "dst is an int, -5"),
        ],
    )
    def test_a_bad_copy_is_refused(self, change: dict[str, Any], sentence: str) -> None:
        address, _ = acl.aclrtMalloc(8, 0)
        good = {"dst": address, "destMax": 8, "src": np.ones(8, np.uint8), "count": 8, "kind": 1}
        status = acl.aclrtMemcpy(**(good | change))
        assert status in (INVALID, RT_INVALID)
        assert sentence in said()

    def test_the_wrong_direction_is_refused(self) -> None:
        address, _ = acl.aclrtMalloc(8, 0)
        assert acl.aclrtMemcpy(address, 8, address, 8, acl.ACL_MEMCPY_HOST_TO_DEVICE) == RT_INVALID
        assert re.match(
            r"aclrtMemcpy: src is 0x\w+, device memory, and kind is ACL_MEMCPY_HOST_TO_DEVICE; "
            r"kind must be ACL_MEMCPY_DEVICE_TO_DEVICE, or src must be host memory. \[107000",
            said(),
        )
        read_only = np.zeros(8, np.uint8)
        read_only.setflags(write=False)
        assert acl.aclrtMemcpy(read_only, 8, address, 8, acl.ACL_MEMCPY_DEVICE_TO_HOST) == RT_INVALID
        assert "dst is a read-only array" in said()

    @pytest.mark.parametrize("size", [0, -4, 1.5, None, "8", True])
    def test_bad_sizes_are_refused(self, size: Any) -> None:
        assert acl.aclrtMalloc(size, 0) == (None, RT_INVALID)
        assert f"size is {size!r}; it must be an int greater than 0" in said()

    def test_more_memory_than_there_is(self) -> None:
        assert acl.aclrtMalloc(2**62, 0) == (None, 200000)
        assert "it must be at most the free memory" in said()
        for policy in (9, 0x100 + 5, -1, 1 << 40):
            assert acl.aclrtMalloc(8, policy) == (None, INVALID)
            assert f"policy is {policy}" in said()

    @pytest.mark.parametrize("wrong", [None, 3, "x", object(), 1.0])
    def test_bad_addresses_are_not_freed(self, wrong: Any) -> None:
        assert acl.aclrtFree(wrong) == RT_INVALID
        assert "devPtr is" in said()

    def test_streams(self) -> None:
        stream, status = acl.aclrtCreateStream()
        assert status == 0
        assert acl.aclrtSynchronizeStream(stream) == 0
        assert acl.aclrtSynchronizeStream(None) == 0  # the default stream
        assert acl.aclrtDestroyStream(stream) == 0
        for bad, sentence in ((stream, "was destroyed"), (7, "stream is an int, 7"), ("s", "is a str")):
            for call in (acl.aclrtSynchronizeStream, acl.aclrtDestroyStream):
                assert call(bad) == RT_INVALID
                assert sentence in said()
        assert acl.aclrtDestroyStream(None) == RT_INVALID
        assert "stream is null" in said()

    def test_a_stream_is_an_ordered_queue_that_returns_at_once(self) -> None:
        stream = Stream()
        gate, order = threading.Event(), []
        assert stream.submit(Job("first", lambda: gate.wait(600) and order.append(0)))
        for i in range(1, 50):
            assert stream.submit(Job("later", lambda i=i: order.append(i)))
        assert order == []
        gate.set()
        assert stream.synchronize() is None
        assert order == list(range(50))
        stream.close()
        assert not stream.submit(Job("late", lambda: None))

    def test_a_job_that_breaks_is_an_internal_error_and_the_stream_goes_on(self, capfd: Any) -> None:
        stream = Stream()
        stream.submit(Job("broken", lambda: 1 / 0))
        failure = stream.synchronize()
        assert failure is not None
        assert failure.status == 500000
        assert "ZeroDivisionError" in failure.message
        assert "ZeroDivisionError" in capfd.readouterr().err
        assert stream.synchronize() is None
        stream.submit(Job("aclnnLarge", lambda: np.empty(2**50)))
        failure = stream.synchronize()
        assert failure is not None
        assert failure.status == 200000
        assert failure.message.startswith("aclnnLarge: the machine has too little memory for this call; free")
        stream.close()

    def test_the_determinism_switch_is_stored(self) -> None:
        assert acl.aclrtCtxGetSysParamOpt(acl.ACL_OPT_DETERMINISTIC) == (0, 0)
        for value in (1, 2, 3, 0):
            assert acl.aclrtCtxSetSysParamOpt(acl.ACL_OPT_DETERMINISTIC, value) == 0
            assert acl.aclrtCtxGetSysParamOpt(acl.ACL_OPT_DETERMINISTIC) == (value, 0)
        for opt, value in ((3, 0), (0, 4), (0, -1), (0, "1"), (None, 1), (1, 2), (2, 2)):
            assert acl.aclrtCtxSetSysParamOpt(opt, value) == INVALID
            assert "it must be" in said()
        assert acl.aclrtCtxGetSysParamOpt(9) == (0, INVALID)
        assert "opt is 9" in said()

    def test_tensors_round_trip(self) -> None:
        array = np.random.default_rng(1).standard_normal((2, 3, 5)).astype(np.float32)
        tensor = acl.tensor_from_numpy(array.transpose(2, 0, 1))
        np.testing.assert_array_equal(acl.tensor_to_numpy(tensor), array.transpose(2, 0, 1))
        assert acl.aclDestroyTensor(tensor) == 0
        assert acl.aclDestroyTensor(tensor) == BAD
        assert "tensor was destroyed" in said()
        with pytest.raises(ValueError, match="tensor was destroyed"):
            acl.tensor_to_numpy(tensor)
        with pytest.raises(TypeError, match="dtype complex64; it must be one of float32, float16"):
            acl.tensor_from_numpy(array.astype(np.complex64))
        for odd, text in ((5, "an int, 5"), (None, "null"), ([1.0], "a list")):
            with pytest.raises(
                TypeError, match=f"^tensor_from_numpy: array is {text}; it must be a NumPy array.$"
            ):
                acl.tensor_from_numpy(odd)  # type: ignore[arg-type]

    def test_a_tensor_of_sizes_that_no_array_has_is_refused(self) -> None:
        address = acl.aclrtMalloc(64, 0)[0]
        for dims in ([-1, 2], [0, -1], [0, 2**62, 2**62]):
            tensor = acl.aclCreateTensor(dims, acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_ND, dims, address)
            assert tensor is not None
            with pytest.raises(
                ValueError, match=r"^tensor_to_numpy: tensor has viewDims .*; .* must be \w+\.$"
            ):
                acl.tensor_to_numpy(tensor)

    def test_a_strided_tensor_with_an_offset(self) -> None:
        storage = acl.tensor_from_numpy(np.arange(24, dtype=np.int32))
        view = acl.aclCreateTensor(
            [2, 3], acl.ACL_INT32, [-12, 2], 13, acl.ACL_FORMAT_ND, [24], storage.address
        )
        assert view is not None
        assert acl.tensor_to_numpy(view).tolist() == [[13, 15, 17], [1, 3, 5]]
        outside = acl.aclCreateTensor(
            [2, 3], acl.ACL_INT32, [-12, 2], 11, acl.ACL_FORMAT_ND, [24], storage.address
        )
        assert outside is not None
        with pytest.raises(ValueError, match="it must lie inside one block"):
            acl.tensor_to_numpy(outside)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"viewDims": 3}, "viewDims is 3"),
            ({"viewDims": [1, 2.5]}, "viewDims is [1, 2.5]"),
            ({"viewDims": [2**63]}, "viewDims is"),
            ({"strides": [1, 2]}, "strides is [1, 2]; it must be null or 1 ints"),
            ({"dataType": 999}, "dataType is 999; it must be a code of aclDataType"),
            ({"dataType": None}, "dataType is None"),
            ({"format": 999}, "format is 999; it must be one of UNDEFINED (-1), NCHW (0)"),
            ({"offset": "0"}, "offset is '0'"),
            ({"storageDims": "x"}, "storageDims is 'x'"),
            ({"tensorData": -1}, "tensorData is an int, -1"),
            ({"tensorData": np.zeros(3)}, "tensorData is a ndarray"),
        ],
    )
    def test_a_bad_tensor_is_null(self, change: dict[str, Any], sentence: str) -> None:
        good: dict[str, Any] = {"viewDims": [3], "dataType": 0, "strides": None, "offset": 0, "format": 2}
        good |= {"storageDims": [3], "tensorData": None}
        assert acl.aclCreateTensor(**good) is not None
        assert acl.aclCreateTensor(**(good | change)) is None
        assert sentence in said()

    def test_int_arrays(self) -> None:
        array = acl.aclCreateIntArray(np.array([3, 2]))
        assert array is not None
        assert array.values == (3, 2)
        assert acl.aclDestroyIntArray(array) == 0
        assert acl.aclDestroyIntArray(array) == BAD
        assert "array was destroyed" in said()
        assert acl.aclDestroyIntArray(acl.tensor_from_numpy(np.zeros(1))) == BAD
        assert "array is an aclTensor; it must be a live aclIntArray" in said()
        for wrong in (3, [1.5], "ab", [2**63], None):
            assert acl.aclCreateIntArray(wrong) is None
            assert "value is" in said()

    def test_messages_belong_to_their_thread(self) -> None:
        acl.aclrtFree(12345)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(acl.aclGetRecentErrMsg()))
        thread.start()
        thread.join()
        assert seen == [None]
        assert "0x3039" in said()


def test_constants_are_the_pages() -> None:
    assert (acl.ACL_FLOAT, acl.ACL_FLOAT16, acl.ACL_BF16, acl.ACL_INT64) == (0, 1, 27, 9)
    assert (acl.ACL_FORMAT_ND, acl.ACL_FORMAT_NCDHW, acl.ACL_FORMAT_NCL) == (2, 30, 47)
    assert acl.ACLNN_ERR_PARAM_NULLPTR == 161001


@pytest.mark.usefixtures("runtime")
def test_very_odd_arguments_give_a_status_too() -> None:
    number = 10**5000
    two = np.array([1, 2])
    assert acl.aclrtMalloc(number, 0) == (None, 500000)
    assert "beyond what can be handled" in said()
    assert acl.aclrtMalloc(16, two) == (None, INVALID)  # type: ignore[arg-type]
    assert acl.aclCreateIntArray(np.array(3)) is None  # type: ignore[arg-type]
    assert "value is" in said()
    address, _ = acl.aclrtMalloc(64, 0)
    assert acl.aclrtMemcpy(address, 8, np.ones(8, np.uint8), 8, two) == INVALID  # type: ignore[arg-type]
    assert acl.aclrtMemcpy(address, 8, np.array([None]), 8, 1) == RT_INVALID
    assert "array of Python objects" in said()
    assert acl.aclrtMemcpy(address, 4, np.matrix([[1, 2]], np.int32), 4, 1) == 0
    assert acl.aclrtMemcpy(2**63, 2**64, 2**62, 2**63 + 1, 0) != 0
    assert said()
    assert acl.aclrtMemcpy(2**70, 8, np.ones(8, np.uint8), 8, 0) == RT_INVALID
    with pytest.raises(TypeError):
        acl.aclrtMalloc(16)  # type: ignore[call-arg]  # Python itself reports a wrong number of arguments


def test_a_deeply_nested_config_and_a_half_good_one(tmp_path: Path) -> None:
    path = tmp_path / "acl.json"
    path.write_text("[" * 100_000)
    assert acl.aclInit(str(path)) == INVALID
    assert "can't be read as JSON" in said()
    path.write_text('{"product": "ascend950", "checks": "bad"}')
    assert acl.aclInit(str(path)) == INVALID
    assert acl.get_product() == "atlas-a2", "a refused file changes no setting"
    said()


@pytest.mark.usefixtures("runtime")
def test_finalize_gives_everything_back() -> None:
    address, _ = acl.aclrtMalloc(64, 0)
    acl.aclrtCtxSetSysParamOpt(0, 1)
    assert acl.aclFinalize() == 0
    assert acl.aclInit(None) == 0
    assert acl.aclrtFree(address) == RT_INVALID
    assert acl.aclrtCtxGetSysParamOpt(0) == (0, 107002)
    assert acl.aclrtSetDevice(0) == 0
    assert acl.aclrtCtxGetSysParamOpt(0) == (0, 0)
    said()


FORKED = """
import os, numpy as np
from pooltide import acl
acl.aclInit(None); acl.aclrtSetDevice(0); acl.aclrtSynchronizeStream(None)
child = os.fork()
if child == 0:
    first = acl.aclrtSynchronizeStream(None), acl.aclGetRecentErrMsg()
    again = acl.aclInit(None), acl.aclrtSetDevice(0), acl.aclrtSynchronizeStream(None)
    os._exit(0 if first[0] == 100001 and "after fork()" in first[1] and again == (0, 0, 0) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
SILENT = """
import numpy as np
from pooltide import acl, aclnn
acl.aclInit(None)
t = acl.tensor_from_numpy
g, x, i = t(np.ones((1, 1, 1, 1), np.float32)), t(np.ones((1, 1, 2, 2), np.float32)), t(np.full((1, 1, 1, 1), 6))
size, executor, _ = aclnn.aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(g, x, i, x)
assert aclnn.aclnnAdaptiveMaxPool2dBackward(None, size, executor, None) == 0
raise SystemExit(acl.aclrtSynchronizeStream(None))
"""


@pytest.mark.parametrize("redirect", ["", "2>/dev/full", "2>&-"])
def test_a_closed_or_full_stderr_does_no_harm(redirect: str) -> None:
    run = subprocess.run(
        f'"{sys.executable}" -c "$PROGRAM" {redirect}',
        shell=True,
        env=os.environ | {"PROGRAM": SILENT},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "")


def test_a_forked_child_gets_a_status_and_may_start_anew() -> None:
    assert subprocess.run([sys.executable, "-c", FORKED], timeout=60, check=False).returncode == 0


GROWTH = """
from pathlib import Path
from pooltide import acl
acl.aclInit(None), acl.aclrtSetDevice(0)
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
def pairs(first, last):
    for i in range(first, last):
        assert acl.aclrtFree(acl.aclrtMalloc(1 + 512 * i, 0)[0]) == 0
pairs(0, 2000)
before = resident()
pairs(2000, 60000)
grown = resident() - before
address, _ = acl.aclrtMalloc(77, 0)
acl.aclrtFree(address)
assert acl.aclrtFree(address) != 0 and "a block of 77 bytes that was freed" in acl.aclGetRecentErrMsg()
print(grown >> 20)
"""


@pytest.mark.slow
def test_memory_stays_flat_over_blocks_of_many_sizes() -> None:
    run = subprocess.run(
        [sys.executable, "-c", GROWTH], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(run.stdout) < 10
