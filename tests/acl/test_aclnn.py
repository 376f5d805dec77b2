"""Both phases: the life of an executor, findings of the checks, and the programs of CANN's documents."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from calls import AVG2, AVG3, GOOD, MAX2, said
from geometries import DTYPES, geometry
from paths import ROOT
from pooltide import acl, aclnn
from pooltide.acl.contexts import STREAMS
from pooltide.acl.stream_queue import Job
from pooltide.operators.catalog import documented, gradients, operators

pytestmark = pytest.mark.usefixtures("runtime")

NULL, BAD = 161001, 161002
RNG = np.random.default_rng(6)


def tensor(array: Any, format: str = "ND") -> Any:
    return acl.tensor_from_numpy(np.asarray(array), getattr(acl, f"ACL_FORMAT_{format}"))


def zeros(*shape: int, format: str = "ND", dtype: Any = np.float32) -> Any:
    return tensor(np.zeros(shape, dtype), format)


def ints(*values: int) -> Any:
    return acl.aclCreateIntArray(values)


class Max2:
    """A good adaptive max call. With float16 data the reference backend needs a workspace for it."""

    def __init__(self, dtype: Any = np.float16) -> None:
        self.g = RNG.standard_normal((2, 3, 2, 5)).astype(dtype)
        self.i = RNG.integers(0, 77, self.g.shape)
        self.grad, self.x = tensor(self.g), zeros(2, 3, 7, 11, dtype=dtype)
        self.indices, self.out = tensor(self.i), tensor(np.full((2, 3, 7, 11), 9, dtype))

    def expected(self) -> Any:
        import pooltide

        return pooltide.adaptive_max_pool2d_backward(self.g, (2, 3, 7, 11), self.i)

    def phase_one(self) -> tuple[int, Any, int]:
        return aclnn.aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(self.grad, self.x, self.indices, self.out)

    def result(self) -> Any:
        return acl.tensor_to_numpy(self.out)


@pytest.fixture
def needs_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the reference backend, which stores float32 sums of half values in the workspace."""
    import pooltide.kernels.plan

    monkeypatch.setenv(pooltide.kernels.plan.ENVIRONMENT, "reference")


def run(operator: str, size: int, executor: Any, stream: Any) -> int:
    workspace = acl.aclrtMalloc(size, 0)[0] if size else None
    status: int = getattr(aclnn, operator)(workspace, size, executor, stream)
    if status == 0:
        status = acl.aclrtSynchronizeStream(stream)
    if workspace:
        acl.aclrtFree(workspace)
    return status


def test_an_executor_serves_one_call() -> None:
    case = Max2(np.float32)
    stream, _ = acl.aclrtCreateStream()
    size, executor, status = case.phase_one()
    assert status == 0
    assert run(MAX2, size, executor, stream) == 0
    np.testing.assert_array_equal(case.result(), case.expected())
    assert acl.aclrtMemcpy(case.out.address, 4, np.float32([7]), 4, 1) == 0
    assert run(MAX2, size, executor, stream) == BAD
    assert "executor has served its one call" in said()
    assert case.result().flat[0] == 7, "nothing was computed"
    assert acl.aclSetAclOpExecutorRepeatable(executor) == BAD
    assert "before that" in said()


def test_a_repeatable_executor_serves_until_destroyed() -> None:
    case = Max2(np.float32)
    size, executor, _ = case.phase_one()
    assert acl.aclSetAclOpExecutorRepeatable(executor) == 0
    for _ in range(3):
        assert acl.aclrtMemcpy(case.out.address, 4, np.float32([7]), 4, 1) == 0
        assert run(MAX2, size, executor, None) == 0
        np.testing.assert_array_equal(case.result(), case.expected())
    assert acl.aclDestroyAclOpExecutor(executor) == 0
    assert run(MAX2, size, executor, None) == BAD
    assert "executor was destroyed" in said()
    assert acl.aclDestroyAclOpExecutor(executor) == BAD
    assert acl.aclSetAclOpExecutorRepeatable(executor) == BAD
    assert acl.aclSetAclOpExecutorRepeatable(None) == 561103


def test_an_executor_of_another_operator_is_refused() -> None:
    case = Max2(np.float32)
    size, executor, _ = case.phase_one()
    assert aclnn.aclnnAvgPool2dBackward(None, size, executor, None) == BAD
    assert (
        "made by aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize; it must be made by "
        "aclnnAvgPool2dBackwardGetWorkspaceSize." in said()
    )
    assert (case.result() == 9).all()
    assert run(MAX2, size, executor, None) == 0  # and it is still good


@pytest.mark.parametrize("wrong", [7, "executor", object()])
def test_a_bad_executor_is_refused(wrong: Any) -> None:
    assert aclnn.aclnnAvgPool2dBackward(None, 0, wrong, None) == BAD
    assert "it must be a live aclOpExecutor of a GetWorkspaceSize call" in said()
    assert aclnn.aclnnAvgPool2dBackward(None, 0, None, None) == NULL
    assert "executor is null" in said()


@pytest.mark.usefixtures("needs_workspace")
def test_the_workspace_must_be_what_phase_one_said() -> None:
    case = Max2()
    size, executor, _ = case.phase_one()
    assert size == 4 * 2 * 3 * 77
    two = aclnn.aclnnAdaptiveMaxPool2dBackward
    small, _ = acl.aclrtMalloc(size - 1, 0)
    assert two(None, size, executor, None) == NULL
    assert f"workspace is null; it must be device memory of {size} bytes" in said()
    assert two(small, size - 1, executor, None) == BAD
    assert f"workspaceSize is {size - 1}; it must be at least {size}" in said()
    assert two(small, size, executor, None) == BAD  # the size is not the true one
    assert f"workspace is {small:#x}, 0 bytes into a block of {size - 1} bytes" in said()
    assert two(64, size, executor, None) == BAD
    assert "workspace is 0x40, in no block" in said()
    assert two("w", size, executor, None) == BAD
    assert "workspace is a str" in said()
    acl.aclrtFree(small)
    assert two(small, size, executor, None) == BAD
    assert "that was freed" in said()
    assert run(MAX2, size, executor, None) == 0
    np.testing.assert_array_equal(case.result(), case.expected())


def test_a_destroyed_stream_is_refused() -> None:
    case = Max2(np.float32)
    size, executor, _ = case.phase_one()
    stream, _ = acl.aclrtCreateStream()
    acl.aclrtDestroyStream(stream)
    assert aclnn.aclnnAdaptiveMaxPool2dBackward(None, size, executor, stream) == BAD
    assert "stream was destroyed" in said()
    assert aclnn.aclnnAdaptiveMaxPool2dBackward(None, size, executor, 5) == BAD
    assert "stream is an int, 5" in said()


def test_a_destroyed_tensor_is_refused() -> None:
    case = Max2(np.float32)
    acl.aclDestroyTensor(case.indices)
    assert case.phase_one() == (0, None, BAD)
    assert "indices was destroyed; it must be a live aclTensor of aclCreateTensor." in said()


def test_phase_two_returns_before_the_work_is_done() -> None:
    case = Max2(np.float32)
    stream, _ = acl.aclrtCreateStream()
    gate = threading.Event()
    stream.submit(Job("first", lambda: gate.wait(600)))
    size, executor, _ = case.phase_one()
    assert aclnn.aclnnAdaptiveMaxPool2dBackward(None, size, executor, stream) == 0
    time.sleep(0.02)
    assert (case.result() == 9).all()
    gate.set()
    assert acl.aclrtSynchronizeStream(stream) == 0
    np.testing.assert_array_equal(case.result(), case.expected())


def test_calls_before_init_and_after_finalize() -> None:
    case = Max2(np.float32)
    size, executor, _ = case.phase_one()
    acl.aclFinalize()
    assert case.phase_one() == (0, None, 361001)
    assert "call aclInit first" in said()
    assert aclnn.aclnnAdaptiveMaxPool2dBackward(None, size, executor, None) == 361001
    assert "call aclInit first" in said()


def test_arguments_may_be_named() -> None:
    case = Max2(np.float32)
    size, executor, status = aclnn.aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(
        gradOutput=case.grad, self=case.x, indices=case.indices, gradInput=case.out
    )
    assert status == 0
    assert run(MAX2, size, executor, None) == 0
    np.testing.assert_array_equal(case.result(), case.expected())


@pytest.mark.parametrize("argument", ["ceilMode", "divisorOverride", "cubeMathType"])
@pytest.mark.parametrize("wrong", [2**70, "x", 1.5, None])
def test_attributes_of_the_wrong_type(argument: str, wrong: Any) -> None:
    from calls import phase_one

    _, _, status, message = phase_one(AVG2, GOOD[AVG2] | {argument: wrong})
    assert status == BAD
    assert message is not None
    assert f"{argument} is " in message


def bad_index() -> tuple[Max2, str]:
    case = Max2(np.float32)
    case.i[1, 2, 0, 3], case.i[1, 2, 1, 1] = 77, -1
    case.indices = tensor(case.i)
    sentence = "indices[1, 2, 0, 3] is 77; it must be 0 to 76, inside the 7×11 plane (2 such indices in all)."
    ignored = (case.i == 77) | (case.i == -1)
    case.g[ignored] = case.i[ignored] = 0
    return case, sentence


def outside_view() -> tuple[Max2, str]:
    case = Max2(np.float32)
    address = acl.aclrtMalloc(8 * 60 - 4, 0)[0]
    acl.aclrtMemcpy(address, 8 * 60 - 4, case.i, 8 * 60 - 4, 1)
    shape = case.i.shape
    case.indices = acl.aclCreateTensor(shape, acl.ACL_INT64, None, 0, acl.ACL_FORMAT_ND, shape, address)
    case.g.flat[-1] = 0
    return case, "indices reaches bytes 0 to 480 of a block of 476 bytes; it must lie inside one block"


def freed_memory() -> tuple[Max2, str]:
    case = Max2(np.float32)
    acl.aclrtFree(case.grad.address)
    case.g[...] = 0
    return case, "gradOutput has an address that is 0x"


def no_memory() -> tuple[Max2, str]:
    case = Max2(np.float32)
    shape = case.g.shape
    case.grad = acl.aclCreateTensor(shape, acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_ND, shape, None)
    case.g[...] = 0
    return case, "gradOutput has no memory (its address is null)"


FINDINGS = [bad_index, outside_view, freed_memory, no_memory]


@pytest.mark.parametrize("make", FINDINGS)
@pytest.mark.parametrize("level", ["off", "warn", "strict"])
def test_findings_follow_the_checks_level(make: Any, level: str, capfd: pytest.CaptureFixture[str]) -> None:
    acl.set_checks(level)
    case, sentence = make()
    size, executor, status = case.phase_one()
    assert status == 0, "phase one reads no data"
    status = run(MAX2, size, executor, None)
    shown = capfd.readouterr().err
    if level == "strict":
        assert status == 500000
        assert sentence in said()
        assert acl.aclrtSynchronizeStream(None) == 0, "a failure is reported once"
    else:
        assert status == 0
        np.testing.assert_array_equal(case.result(), case.expected())
        assert acl.aclGetRecentErrMsg() is None
    if level == "warn":
        assert shown.count("\n") == 1
        assert shown.startswith("pooltide: aclnnAdaptiveMaxPool2dBackward: ")
        assert sentence in shown
    else:
        assert shown == ""


@pytest.mark.parametrize("level", ["warn", "strict"])
def test_an_output_that_reaches_outside_is_written_inside_only(level: str, capfd: Any) -> None:
    acl.set_checks(level)
    case = Max2(np.float32)
    block, _ = acl.aclrtMalloc(4 * 462, 0)
    canary = np.full(462, 5, np.float32)
    acl.aclrtMemcpy(block, 4 * 462, canary, 4 * 462, 1)
    shape = (2, 3, 7, 11)
    case.out = acl.aclCreateTensor(shape, acl.ACL_FLOAT, None, 2, acl.ACL_FORMAT_ND, shape, block)
    size, executor, _ = case.phase_one()
    status = run(MAX2, size, executor, None)
    got = np.zeros(462, np.float32)
    acl.aclrtMemcpy(got, 4 * 462, block, 4 * 462, 2)
    if level == "strict":
        assert status == 500000
        assert (got == 5).all()
        return
    assert status == 0
    assert "gradInput reaches bytes 8 to 1856 of a block of 1848 bytes" in capfd.readouterr().err
    assert got[:2].tolist() == [5, 5]
    np.testing.assert_array_equal(got[2:], case.expected().ravel()[:460])


def test_a_huge_view_over_a_small_block_is_an_error_and_not_a_crash() -> None:
    acl.set_checks("warn")
    small, _ = acl.aclrtMalloc(64, 0)
    shape = (2**10, 2**10, 2**10, 2**9)
    nchw = acl.ACL_FORMAT_NCHW
    big = [acl.aclCreateTensor(shape, acl.ACL_FLOAT, None, 0, nchw, shape, small) for _ in range(3)]
    size, executor, status = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
        big[0], big[1], ints(1), None, ints(0), False, True, 0, 0, big[2]
    )
    assert status == 0
    assert aclnn.aclnnAvgPool2dBackward(None, size, executor, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 500000
    assert "it is too large to be used in part" in said()


def test_input_and_output_may_share_memory() -> None:
    import pooltide

    g = RNG.standard_normal((1, 2, 5, 7)).astype(np.float32)
    shared = tensor(g, "NCHW")
    size, executor, status = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
        shared, shared, ints(3), ints(1), ints(1), False, True, 0, 0, shared
    )
    assert status == 0, acl.aclGetRecentErrMsg()
    assert run(AVG2, size, executor, None) == 0
    np.testing.assert_array_equal(
        acl.tensor_to_numpy(shared), pooltide.avg_pool2d_backward(g, g.shape, 3, 1, 1)
    )


@pytest.mark.parametrize(
    "function", [page.function for page in documented().values() if page.function in gradients()]
)
def test_random_geometries_with_strides_and_offsets(function: str) -> None:
    """The documented interface gives what the NumPy function gives, through any view."""
    page = operators()[function]
    stream, _ = acl.aclrtCreateStream()
    for seed in range(100):
        dtype = [d for d in DTYPES if d != np.float64][seed % 3]
        case = geometry(function, seed, dtype)
        if case.indices is not None and page.name != MAX2:
            case.indices = case.indices.astype(np.int32)
        if page.function == "max_pool2d_backward" and case.attributes["dilation"] != (1, 1):
            continue  # this product has no other dilation
        expected = case.run()
        batched = len(case.input_shape) == case.axes + 2
        format = page.parameters[0].formats[0] if batched or page.name != AVG2 else "NCL"
        g = _strided_tensor(case.grad_output, format)
        x = tensor(np.zeros(case.input_shape, dtype), format)
        out = _strided_tensor(np.asfortranarray(np.full(case.input_shape, np.nan, dtype)), format)
        middle = [] if case.indices is None else [_strided_tensor(case.indices, format)]
        if case.attributes:
            a = case.attributes
            middle += [ints(*v) if isinstance(v, tuple) else v or 0 for v in a.values()]
            middle += [0] if page.cube else []
        size, executor, status = aclnn.FUNCTIONS[f"{page.name}GetWorkspaceSize"](g, x, *middle, out)
        assert status == 0, acl.aclGetRecentErrMsg()
        assert run(page.name, size, executor, stream) == 0
        np.testing.assert_array_equal(acl.tensor_to_numpy(out), expected, err_msg=str(case))


def _strided_tensor(array: Any, format: str) -> Any:
    """A device tensor with the array's strides and an offset into its storage."""
    storage = array
    while storage.base is not None:
        storage = storage.base
    raw = np.lib.stride_tricks.as_strided(storage, (storage.nbytes // array.itemsize,), (array.itemsize,))
    raw = np.ascontiguousarray(raw)
    device = acl.tensor_from_numpy(raw)
    offset = (array.__array_interface__["data"][0] - storage.__array_interface__["data"][0]) // array.itemsize
    strides = [s // array.itemsize for s in array.strides]
    code = device.dtype.code
    return acl.aclCreateTensor(
        array.shape, code, strides, offset, getattr(acl, f"ACL_FORMAT_{format}"), raw.shape, device.address
    )


@pytest.mark.parametrize("value", [1, 2, 3])
def test_cube_math_type_rounds_the_gradient_first(value: int) -> None:
    import pooltide
    from pooltide.problem.rounding import to_float16, to_hfloat32

    g = RNG.standard_normal((2, 3, 4, 6)).astype(np.float32)
    g[0, 0, 0, :2] = [1e5, np.inf]  # 1e5 is Inf in FLOAT16
    rounded = to_float16(g) if value == 2 else to_hfloat32(g)
    assert (rounded != g).any()
    shape = (2, 3, 7, 11)
    expected = pooltide.avg_pool2d_backward(rounded, shape, 3, 2, 1)
    grad, x, out = tensor(g, "NCHW"), zeros(*shape, format="NCHW"), zeros(*shape, format="NCHW")
    size, executor, status = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
        grad, x, ints(3), ints(2), ints(1), False, True, 0, value, out
    )
    assert status == 0
    assert size > 0, "the rounded gradient needs a workspace"
    assert run(AVG2, size, executor, None) == 0
    np.testing.assert_array_equal(acl.tensor_to_numpy(out), expected)
    np.testing.assert_array_equal(acl.tensor_to_numpy(grad), g)


def test_two_threads_with_a_stream_each() -> None:
    """1,000 calls: right results, and each thread reads only its errors."""
    faults: list[str] = []

    def work(name: int) -> None:
        rng = np.random.default_rng(name)
        stream, _ = acl.aclrtCreateStream()
        for i in range(500):
            g = rng.standard_normal((1, 2, 2, 5)).astype(np.float32)
            grad, x, out = tensor(g), zeros(1, 2, 7, 11), zeros(1, 2, 7, 11)
            flat = rng.integers(0, 77, g.shape).astype(np.int32)
            indices = tensor(flat)
            size, executor, status = aclnn.aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(
                grad, x, indices, out
            )
            if status or run(MAX2, size, executor, stream):
                faults.append(f"{name}/{i}: {acl.aclGetRecentErrMsg()}")
            expected = np.zeros((1, 2, 77), np.float32)
            for c in range(2):
                np.add.at(expected[0, c], flat[0, c].ravel(), g[0, c].ravel())
            if not (acl.tensor_to_numpy(out).reshape(1, 2, 77) == expected).all():
                faults.append(f"{name}/{i}: wrong result")
            wrong = 1000 * name + i + 1
            acl.aclrtFree(wrong)
            if f"devPtr is {wrong:#x}," not in (acl.aclGetRecentErrMsg() or ""):
                faults.append(f"{name}/{i}: not my message")
            for handle in (grad, x, out, indices):
                acl.aclDestroyTensor(handle)
        acl.aclrtDestroyStream(stream)

    threads = [threading.Thread(target=work, args=(name,)) for name in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[:5]
    assert len(STREAMS.live()) <= 1


def test_strides_and_offsets_beyond_64_bits_write_only_inside_the_block() -> None:
    acl.set_checks("off")
    grad = tensor(np.array([5, 7], np.float32).reshape(1, 1, 1, 1, 2), "NCDHW")
    shape = (1, 1, 1, 1, 2)
    block, _ = acl.aclrtMalloc(4096, 0)
    for strides, offset, expected in (
        ([1, 1, 1, 1, 2**62], 3, [0, 0, 0, 5]),
        (None, 2**62, [0, 0, 0, 0]),
        (None, -(2**63), [0, 0, 0, 0]),
        ([1, 1, 1, 1, -(2**63)], 1, [0, 5, 0, 0]),
    ):
        acl.aclrtMemcpy(block, 4096, np.zeros(1024, np.float32), 4096, 1)
        out = acl.aclCreateTensor(shape, acl.ACL_FLOAT, strides, offset, acl.ACL_FORMAT_NCDHW, shape, block)
        size, executor, status = aclnn.aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad, out, out)
        assert status == 0, acl.aclGetRecentErrMsg()
        assert run(AVG3, size, executor, None) == 0
        got = np.zeros(1024, np.float32)
        acl.aclrtMemcpy(got, 4096, block, 4096, 2)
        assert got[:4].tolist() == expected
        assert not got[4:].any()


def test_a_view_may_not_start_in_another_block() -> None:
    acl.set_checks("strict")
    first, second = tensor(np.ones((1, 1, 1, 1, 2), np.float32)), tensor(np.ones((1, 1, 1, 1, 2), np.float32))
    offset = (second.address - first.address) // 4
    shape = (1, 1, 1, 1, 2)
    grad = acl.aclCreateTensor(shape, acl.ACL_FLOAT, None, offset, acl.ACL_FORMAT_ND, shape, first.address)
    size, executor, _ = aclnn.aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad, second, second)
    assert run(AVG3, size, executor, None) == 500000
    assert "gradOutput reaches bytes" in said()


@pytest.mark.usefixtures("needs_workspace")
def test_the_workspace_may_not_be_a_tensors_memory() -> None:
    case = Max2()
    size, executor, _ = case.phase_one()
    assert aclnn.aclnnAdaptiveMaxPool2dBackward(0, size, executor, None) == NULL
    big, _ = acl.aclrtMalloc(size + 924, 0)
    case.out = acl.aclCreateTensor((2, 3, 7, 11), acl.ACL_FLOAT16, None, 0, acl.ACL_FORMAT_ND, [462], big)
    size, executor, _ = case.phase_one()
    assert aclnn.aclnnAdaptiveMaxPool2dBackward(big + 896, size, executor, None) == BAD
    assert "in memory of gradInput; it must be memory that no tensor of the call uses" in said()
    odd, _ = acl.aclrtMalloc(size + 1, 0)
    assert aclnn.aclnnAdaptiveMaxPool2dBackward(odd + 1, size, executor, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 0
    np.testing.assert_array_equal(case.result(), case.expected())


def test_a_tensor_destroyed_between_the_phases() -> None:
    case = Max2(np.float32)
    size, executor, _ = case.phase_one()
    acl.aclDestroyTensor(case.grad)
    assert aclnn.aclnnAdaptiveMaxPool2dBackward(None, size, executor, None) == BAD
    assert "gradOutput was destroyed after phase one; it must live until phase two." in said()


def test_a_failure_is_reported_by_synchronize_or_printed_at_the_end(
    capfd: pytest.CaptureFixture[str],
) -> None:
    acl.set_checks("strict")
    for synchronize in (True, False):
        case, sentence = bad_index()
        stream, _ = acl.aclrtCreateStream()
        size, executor, _ = case.phase_one()
        assert aclnn.aclnnAdaptiveMaxPool2dBackward(None, size, executor, stream) == 0
        assert acl.aclrtSetDevice(0) == 0 == acl.aclrtResetDevice(0)  # which waits
        if synchronize:
            assert acl.aclrtSynchronizeStream(stream) == 500000
        assert acl.aclrtDestroyStream(stream) == 0
        assert (sentence in capfd.readouterr().err) != synchronize


def test_an_unknown_backend_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLTIDE_BACKEND", "abacus")
    assert Max2(np.float32).phase_one() == (0, None, 561000)
    assert "backend 'abacus' is unknown" in said()


def test_empty_batches_of_any_width() -> None:
    shape, outer = (0, 2**62, 2, 2), (0, 2**62, 1, 1)
    nd = acl.ACL_FORMAT_ND
    x, g = (acl.aclCreateTensor(s, acl.ACL_FLOAT, None, 0, nd, s, None) for s in (shape, outer))
    i = acl.aclCreateTensor(outer, acl.ACL_INT64, None, 0, nd, outer, None)
    size, executor, status = aclnn.aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(g, x, i, x)
    assert status == 0
    assert run(MAX2, size, executor, None) == 0


# The programs of CANN's documents, call by call.


def test_program_adaptive_avg_pool3d() -> None:
    g = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 1, 1, 2)
    shape = (2, 2, 1, 1, 4)
    grad, x, out = tensor(g, "NCDHW"), zeros(*shape, format="NCDHW"), zeros(*shape, format="NCDHW")
    size, executor, status = aclnn.aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad, x, out)
    assert status == 0
    assert run(AVG3, size, executor, None) == 0
    expected = [0.5, 0.5, 1, 1, 1.5, 1.5, 2, 2, 2.5, 2.5, 3, 3, 3.5, 3.5, 4, 4]
    assert acl.tensor_to_numpy(out).ravel().tolist() == expected


def test_program_avg_pool2d() -> None:
    grad = tensor(np.ones((1, 16, 1, 1), np.float32), "NCHW")
    x, out = (tensor(np.ones((1, 16, 4, 4), np.float32), "NCHW") for _ in range(2))
    size, executor, status = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
        grad, x, ints(4, 4), ints(1, 1), ints(0, 0), False, True, 0, 1, out
    )
    assert status == 0
    assert run(AVG2, size, executor, None) == 0
    assert acl.tensor_to_numpy(out).ravel().tolist() == [0.0625] * 256


@pytest.mark.parametrize("level", ["warn", "strict"])
def test_program_adaptive_max_pool2d_which_is_wrong(level: str, capfd: pytest.CaptureFixture[str]) -> None:
    acl.set_checks(level)
    grad = tensor(np.full((1, 1, 1, 1), 0.4757, np.float32))
    x, out = zeros(1, 1, 2, 2), zeros(1, 1, 2, 2)
    address, _ = acl.aclrtMalloc(4, acl.ACL_MEM_MALLOC_HUGE_FIRST)
    assert acl.aclrtMemcpy(address, 4, np.array([6], np.int32), 4, acl.ACL_MEMCPY_HOST_TO_DEVICE) == 0
    indices = acl.aclCreateTensor([1] * 4, acl.ACL_INT64, [1] * 4, 0, acl.ACL_FORMAT_ND, [1] * 4, address)
    size, executor, status = aclnn.aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(grad, x, indices, out)
    assert status == 0
    status = run(MAX2, size, executor, None)
    assert acl.tensor_to_numpy(out).ravel().tolist() == [0, 0, 0, 0]
    if level == "strict":
        assert status == 500000
        assert "indices reaches bytes 0 to 8 of a block of 4 bytes" in said()
    else:
        assert status == 0
        assert "indices reaches bytes 0 to 8 of a block of 4 bytes" in capfd.readouterr().err


def test_the_cost_of_calls_can_be_measured() -> None:
    """docs/cann.md has these numbers; the test does not judge them."""
    tool = ROOT / "tools" / "aclnn_calls.py"
    if not tool.exists():
        pytest.skip("NO TOOLS: the tests run outside the tree")
    command = [sys.executable, str(tool), "--rounds", "1"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    lines = r"(this install: aclnn\w+Backward(, repeatable)? [\d.]+ µs\n){4}"
    assert re.fullmatch(lines, run.stdout), run.stdout
