"""CANN's sibling operators through both phases: the bits of the NumPy functions and of PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F
from ml_dtypes import bfloat16

import pooltide
from calls import product, said
from forwards import bits, tensor
from pooltide import acl, aclnn
from pooltide.geometry import strided_outputs
from pooltide.operators.catalog import documented
from pooltide.operators.dtypes import DTYPES
from pooltide.operators.pages import Operator
from siblings import SIBLINGS

pytestmark = pytest.mark.usefixtures("runtime")
RNG = np.random.default_rng(15)
PLANES = {2: [(1, 1), (1, 4), (3, 2), (4, 5), (6, 3)], 3: [(1, 1, 1), (2, 3, 4), (4, 3, 2), (3, 5, 4)]}
OUTPUTS = {2: [(1, 1), (2, 3), (4, 1), (5, 7)], 3: [(1, 1, 1), (2, 3, 1), (3, 2, 5)]}
KERNELS = {2: [(1, 1), (2, 3), (3, 2)], 3: [(1, 1, 1), (2, 3, 1), (3, 2, 2)]}
PAGES = {name: documented()[name] for name in SIBLINGS if not documented()[name].regional}
POOLS = [name for name, page in PAGES.items() if page.function and not page.unpool]
FORWARDS = [name for name in POOLS if not documented()[name].gradient]
GRADIENTS = [name for name in POOLS if documented()[name].gradient]
UNPOOLS = [name for name in SIBLINGS if documented()[name].unpool]


def device(array: Any, format: str = "ND") -> Any:
    return acl.tensor_from_numpy(np.asarray(array), getattr(acl, f"ACL_FORMAT_{format}"))


def compute(name: str, **given: Any) -> dict[str, Any]:
    """Run both phases; arrays become tensors, lists int arrays. Returns self and the results after the run."""
    page = documented()[name]
    made: dict[str, Any] = {}
    for parameter in page.parameters:
        value = given[parameter.name]
        if parameter.type == "tensor" and isinstance(value, np.ndarray):
            value = device(value, format_of(parameter, value))
        made[parameter.name] = acl.aclCreateIntArray(value) if isinstance(value, list) else value
    size, executor, status = getattr(aclnn, f"{name}GetWorkspaceSize")(*made.values())
    assert status == 0, acl.aclGetRecentErrMsg()
    workspace = acl.aclrtMalloc(size, 0)[0] if size else None
    assert getattr(aclnn, name)(workspace, size, executor, None) == 0, acl.aclGetRecentErrMsg()
    assert acl.aclrtSynchronizeStream(None) == 0, acl.aclGetRecentErrMsg()
    wanted = [p for p in page.parameters if p.type == "tensor" and p.role in {"input", *page.results}]
    found = {p.name: acl.tensor_to_numpy(made[p.name]) for p in wanted}
    for parameter in page.parameters:
        if parameter.type == "tensor":
            acl.aclDestroyTensor(made[parameter.name])
    if workspace:
        acl.aclrtFree(workspace)
    return found


def format_of(parameter: Any, array: Any) -> str:
    """A format that fits the rank: NCL has no N."""
    formats = [f for f in parameter.formats if f != "NHWC" and (f != "NCHW" or array.ndim == 4)]
    formats = ["ND"] if "ND" in formats and array.ndim == 3 else formats
    return str(formats[0])


def strided(axes: int, maxima: bool) -> Iterator[dict[str, Any]]:
    for k, s, ceil in itertools.product(KERNELS[axes], (1, 2, 3), (False, True)):
        for p in {0, 1} if min(k) > 1 else {0}:
            found = {"kernel_size": k, "stride": (s, *[2] * (axes - 1)), "padding": (p,) * axes}
            if maxima:
                yield found | {"dilation": (1,) * axes, "ceil_mode": ceil}
            else:
                for counted, divisor in ((True, None), (False, None), (True, -3)):
                    yield found | {
                        "ceil_mode": ceil,
                        "count_include_pad": counted,
                        "divisor_override": divisor,
                    }


def geometries(page: Operator) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    """Shapes of the input, and arguments of the NumPy function, that fit each other."""
    axes = len(page.axes)
    for plane in PLANES[axes]:
        if page.windows == "adaptive":
            for outputs in OUTPUTS[axes]:
                yield plane, {"output_size": outputs}
            continue
        for arguments in strided(axes, not page.average):
            sizes = zip(plane, *(arguments[n] for n in ("kernel_size", "stride", "padding")), strict=True)
            fits = all(strided_outputs(n, k, s, p, arguments["ceil_mode"]) > 0 for n, k, s, p in sizes)
            holds = all(n >= k for n, k in zip(plane, arguments["kernel_size"], strict=True))
            if fits and (holds or axes == 2):  # PyTorch's 3-D average wants an input that holds the kernel
                yield plane, arguments


def spelled(page: Operator, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a NumPy function under CANN's names."""
    roles = {"kernel_size": "kernel"}
    found: dict[str, Any] = {"cubeMathType": 0} if page.cube else {}
    for name, value in arguments.items():
        parameter = page.by_role(roles.get(name, name))
        if parameter is not None:
            found[parameter.name] = list(value) if isinstance(value, tuple) else value or 0
            if parameter.type == "bool":
                found[parameter.name] = bool(value)
    return found


def dtypes_on(name: str, on: str) -> list[Any]:
    page = documented()[name]
    return [DTYPES[dtype].numpy for dtype in page.dtypes(page.parameters[0], on)]


def data(shape: tuple[int, ...], dtype: Any) -> Any:
    x = RNG.standard_normal(shape)
    x[RNG.random(shape) < 0.2] = 1  # equal cells
    return x.astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORWARDS)
def test_forwards_have_the_bits_of_the_numpy_functions_and_of_pytorch(name: str) -> None:
    page = documented()[name]
    function, pool = getattr(pooltide, page.function), getattr(F, page.function)
    maxima = page.kind == "maximum"
    ran: set[str] = set()
    for number, (plane, arguments) in enumerate(geometries(page)):
        for on in SIBLINGS[name][0].split():
            dtypes = dtypes_on(name, on)
            if page.cube and on in ("atlas-inference", "atlas-training"):
                dtypes = [np.dtype(np.float16)]  # float32 is rounded there
            x = data((2, 3, *plane) if number % 3 else (3, *plane), dtypes[number % len(dtypes)])
            want = function(x, **arguments, **({"return_indices": True} if maxima else {}))
            want = want if maxima else (want,)
            results = [p for p in page.parameters if p.role in page.results]
            index = DTYPES[SIBLINGS[name][2] or "INT64"].numpy
            out = {p.name: np.full(want[0].shape, 77, x.dtype if p.role == "out" else index) for p in results}
            with product(on):
                got = compute(name, self=x, **spelled(page, arguments), **out)
            ran.add(on)
            for parameter, expected in zip(results, want, strict=True):
                np.testing.assert_array_equal(bits(got[parameter.name]), bits(expected), str(arguments))
            if x.dtype == np.float32 and arguments.get("output_size") != (1,) * len(plane):
                theirs = pool(tensor(x), **arguments, **({"return_indices": True} if maxima else {}))
                np.testing.assert_array_equal(
                    bits(got[results[0].name]), bits(theirs[0] if maxima else theirs)
                )
                if maxima:
                    np.testing.assert_array_equal(got[results[1].name], theirs[1].numpy())
    assert ran == set(SIBLINGS[name][0].split())


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_have_the_bits_of_the_numpy_functions_and_of_pytorch(name: str) -> None:
    """What the forward gives goes back through the gradient, as in a step of training."""
    page = documented()[name]
    function = getattr(pooltide, page.function)
    forward = getattr(pooltide, page.function.removesuffix("_backward"))
    maxima = page.kind == "maximum_gradient"
    out_name = next(p.name for p in page.parameters if p.role == "out")
    for number, (plane, arguments) in enumerate(geometries(page)):
        for on in SIBLINGS[name][0].split():
            dtypes = dtypes_on(name, on)
            x = data((2, 3, *plane) if number % 3 else (3, *plane), dtypes[number % len(dtypes)])
            y = forward(x, **arguments, **({"return_indices": True} if maxima else {}))
            y, indices = y if maxima else (y, None)
            g = data(y.shape, x.dtype)
            middle = (indices,) if maxima else ()
            given = {n: v for n, v in arguments.items() if n != "output_size"}
            want = function(g, x.shape, *middle, **given)
            more = {"indices": indices.astype(np.int32)} if maxima else {}
            with product(on):
                got = compute(
                    name,
                    gradOutput=g,
                    self=x,
                    **more,
                    **spelled(page, given),
                    **{out_name: np.full_like(x, 7)},
                )
            np.testing.assert_array_equal(bits(got[out_name]), bits(want), str(arguments))
            np.testing.assert_array_equal(bits(got["self"]), bits(x))
            if x.dtype == np.float32 and arguments.get("output_size") != (1,) * len(plane):
                theirs = tensor(x).requires_grad_()
                getattr(F, forward.__name__)(theirs, **arguments).backward(tensor(g))
                np.testing.assert_array_equal(bits(got[out_name]), bits(theirs.grad))


def test_a_max_pool_pads_each_side_by_itself() -> None:
    x = data((2, 3, 7, 11), np.float32)
    for top, left, bottom, right in itertools.product((0, 1), repeat=4):
        for ceil in (0, 1):
            padded = F.pad(tensor(x), (left, right, top, bottom), value=-np.inf)
            want = F.max_pool2d(padded, (3, 2), (2, 3), ceil_mode=False).numpy()
            plane = tuple(
                strided_outputs(n, k, s, p, bool(ceil), after)
                for n, k, s, p, after in ((7, 3, 2, top, bottom), (11, 2, 3, left, right))
            )
            got = compute(
                "aclnnMaxPool", self=x, kernelShape=[3, 2], strides=[2, 3], autoPad=0,
                pads=[top, left, bottom, right], dilations=[], ceilMode=ceil,
                out=np.full((2, 3, *plane), np.nan, np.float32),
            )["out"]  # fmt: skip
            rows, columns = want.shape[2:]
            np.testing.assert_array_equal(got[:, :, :rows, :columns], want)
            assert np.isfinite(got).all()


@pytest.mark.parametrize("pads", [[], [1], [1, 0]])
def test_a_max_pool_is_the_max_pool_of_the_numpy_function(pads: list[int]) -> None:
    for dtype in (np.float32, np.float16):
        x = data((3, 7, 11), dtype)
        want = pooltide.max_pool2d(x, 3, 2, tuple(pads or [0]), ceil_mode=True)
        out = np.full(want.shape, np.nan, dtype)
        got = compute(
            "aclnnMaxPool", self=x, kernelShape=[3], strides=[2], autoPad=0, pads=pads, dilations=[1, 1, 1, 1],
            ceilMode=2, out=out,
        )["out"]  # fmt: skip
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rank", range(4, 9))
def test_global_pools_reduce_every_plane_of_any_rank(rank: int) -> None:
    shape = (2, 3, *(3, 5, 2, 4, 2, 3)[: rank - 2])
    for dtype in (np.float32, np.float16, np.float64):
        x = data(shape, dtype)
        plane = x.reshape(2, 3, -1, *shape[-2:])
        for name, function in (
            ("aclnnGlobalAveragePool", pooltide.adaptive_avg_pool3d),
            ("aclnnGlobalMaxPool", pooltide.adaptive_max_pool3d),
        ):
            out = np.full((2, 3, *[1] * (rank - 2)), np.nan, dtype)
            got = compute(name, self=x, out=out)["out"]
            np.testing.assert_array_equal(got.ravel(), function(plane, 1).ravel())
            exact = plane.astype(np.float64).mean((2, 3, 4)) if "Average" in name else plane.max((2, 3, 4))
            np.testing.assert_allclose(got.reshape(2, 3), exact, rtol=1e-2, atol=1e-2)


def strided_tensor(x: Any, format: str) -> Any:
    """A tensor whose view is every second element of its memory, with the axes in reverse order."""
    storage = np.full(2 * x.size, 9, x.dtype)
    storage[::2] = x.T.ravel()
    memory = device(storage)
    steps = [2 * prod(x.shape[:axis]) for axis in range(x.ndim)]
    code = getattr(acl, f"ACL_FORMAT_{format}")
    return acl.aclCreateTensor(x.shape, memory.dtype.code, steps, 0, code, storage.shape, memory.address)


@pytest.mark.parametrize("rank", [4, 5, 7])
def test_global_pools_of_strided_views(rank: int) -> None:
    x = data((2, 3, 2, 5, 4, 3, 2)[:rank], np.float32)
    out = np.full((2, 3, *[1] * (rank - 2)), np.nan, np.float32)
    got = compute("aclnnGlobalMaxPool", self=strided_tensor(x, "ND"), out=out)["out"]
    np.testing.assert_array_equal(got.reshape(2, 3), x.max(tuple(range(2, rank))))


@pytest.mark.parametrize("shape", [(2, 3, 7, 11), (3, 7, 11)])
def test_channels_last_formats_have_the_channels_last(shape: tuple[int, ...]) -> None:
    x = data(shape, np.float32)
    values, indices = pooltide.adaptive_max_pool2d(x, (2, 5), return_indices=True)
    last = np.ascontiguousarray(np.moveaxis(x, -3, -1))
    out_shape = np.moveaxis(values, -3, -1).shape
    tensors = {
        "self": device(last, "NHWC"),
        "outputOut": device(np.full(out_shape, np.nan, np.float32), "NHWC"),
        "indicesOut": device(np.full(out_shape, -1), "NHWC"),
    }
    got = compute("aclnnAdaptiveMaxPool2d", outputSize=[2, 5], **tensors)
    np.testing.assert_array_equal(np.moveaxis(got["outputOut"], -1, -3), values)
    np.testing.assert_array_equal(np.moveaxis(got["indicesOut"], -1, -3), indices)


@pytest.mark.parametrize("name", [n for n in FORWARDS if SIBLINGS[n][2]])
def test_both_results_of_a_forward_may_be_strided(name: str) -> None:
    page = documented()[name]
    plane, arguments = next(g for g in geometries(page) if min(g[0]) > 1)
    x = data((2, 3, *plane), np.float32)
    values, indices = getattr(pooltide, page.function)(x, **arguments, return_indices=True)
    format = page.parameters[0].formats[0]
    names = {p.role: p.name for p in page.parameters}
    index = DTYPES[SIBLINGS[name][2]].numpy
    got = compute(
        name,
        self=strided_tensor(x, format),
        **spelled(page, arguments),
        **{
            names["out"]: strided_tensor(np.full(values.shape, 9, np.float32), format),
            names["indices"]: strided_tensor(np.full(values.shape, 9, index), format),
        },
    )
    np.testing.assert_array_equal(got[names["out"]], values)
    np.testing.assert_array_equal(got[names["indices"]], indices)


def test_results_that_share_memory_are_a_finding() -> None:
    x, block = data((1, 1, 4, 4), np.float32), device(np.zeros(8, np.int64))
    code = acl.ACL_FORMAT_NCHW
    shape = (1, 1, 2, 2)
    for kind, level, status in ((acl.ACL_FLOAT, "strict", 500000), (acl.ACL_FLOAT, "warn", 0)):
        out = acl.aclCreateTensor(shape, kind, None, 0, code, shape, block.address)
        indices = acl.aclCreateTensor(shape, acl.ACL_INT64, None, 0, code, shape, block.address)
        before = acl.get_checks()
        acl.set_checks(level)
        try:
            size, executor, ret = aclnn.aclnnAdaptiveMaxPool2dGetWorkspaceSize(
                device(x, "NCHW"), acl.aclCreateIntArray([2, 2]), out, indices
            )
            assert ret == 0
            assert aclnn.aclnnAdaptiveMaxPool2d(None, size, executor, None) == 0
            assert acl.aclrtSynchronizeStream(None) == status
        finally:
            acl.set_checks(before)
        if status:
            assert "indicesOut shares memory with outputOut; it must have its own." in said()


@pytest.mark.parametrize("name", ["aclnnAdaptiveMaxPool2d", "aclnnMaxPool2dWithIndices", "aclnnAvgPool3d"])
def test_an_empty_batch_has_empty_results(name: str) -> None:
    page = documented()[name]
    plane, arguments = next(g for g in geometries(page) if min(g[0]) > 1)
    x = np.empty((0, 3, *plane), np.float32)
    outputs = getattr(pooltide, page.function)(x, **arguments).shape
    results = [p for p in page.parameters if p.role in page.results]
    index = DTYPES[SIBLINGS[name][2] or "INT64"].numpy
    out = {p.name: np.empty(outputs, np.float32 if p.role == "out" else index) for p in results}
    compute(name, self=x, **spelled(page, arguments), **out)


def test_cube_math_type_rounds_the_input_of_an_average_first() -> None:
    from pooltide.problem.rounding import to_float16, to_hfloat32

    x = data((2, 3, 7, 11), np.float32)
    for on, value, rounded in (
        ("atlas-a2", 1, to_hfloat32(x)),
        ("atlas-a2", 2, to_float16(x)),
        ("atlas-inference", 1, to_float16(x)),
    ):
        assert (rounded != x).any()
        want = pooltide.avg_pool2d(rounded, 3, 2, 1)
        given = {"kernelSize": [3], "strides": [2], "paddings": [1], "ceilMode": False, "divisorOverride": 0}
        with product(on):
            got = compute(
                "aclnnAvgPool2d", self=x, **given, countIncludePad=True, cubeMathType=value,
                out=np.full(want.shape, np.nan, np.float32),
            )  # fmt: skip
        np.testing.assert_array_equal(got["out"], want)
        np.testing.assert_array_equal(got["self"], x)


@pytest.mark.parametrize("name", UNPOOLS)
def test_unpools_move_elements_of_any_dtype(name: str) -> None:
    page, (products, dtypes, indices) = documented()[name], SIBLINGS[name]
    axes = len(page.axes)
    pooled, plane = ((2, 5), (7, 11)) if axes == 2 else ((2, 5, 3), (7, 4, 6))
    small, large = (2, 3, *pooled), (2, 3, *plane)
    out_name = page.parameters[-1].name
    more = {"stride": [2] * 3, "padding": [0] * 3} if axes == 3 else {}
    for on, dtype, index in itertools.product(products.split(), dtypes[""].split(), indices.split()):
        at = RNG.integers(0, prod(plane), small).astype(DTYPES[index].numpy)
        source = RNG.integers(0, 100, large if page.gradient else small).astype(DTYPES[dtype].numpy)
        given: dict[str, Any] = {"self": source, "indices": at, "outputSize": list(plane)}
        flat = at.reshape(6, -1).astype(np.int64)
        if page.gradient:
            given |= {"gradOutput": source, "self": np.zeros(small, source.dtype)}
            want = np.take_along_axis(source.reshape(6, -1), flat, 1).reshape(small)
        else:
            want = np.zeros((6, prod(plane)), source.dtype)
            for row, where, values in zip(want, flat, source.reshape(6, -1), strict=True):
                for i, value in zip(where, values, strict=True):  # of equal indices the last one counts
                    row[i] = value
            want = want.reshape(large)
        with product(on):
            got = compute(name, **given, **more, **{out_name: np.ones(want.shape, want.dtype)})
        np.testing.assert_array_equal(got[out_name], want)


@pytest.mark.parametrize("name", UNPOOLS)
def test_an_index_outside_the_plane_of_an_unpool_is_a_finding(name: str, capfd: Any) -> None:
    page = documented()[name]
    axes = len(page.axes)
    small, large = (1, 1, *[1] * (axes - 1), 2), (1, 1, *[2] * axes)
    cells = 2**axes
    given: dict[str, Any] = {
        "self": np.full(small, 5, np.float32),
        "indices": np.array([1, cells]).reshape(small),
        "outputSize": [2] * axes,
    }
    given |= {"stride": [2] * 3, "padding": [0] * 3} if axes == 3 else {}
    given |= {"gradOutput": np.full(large, 7, np.float32)} if page.gradient else {}
    out_name = page.parameters[-1].name
    got = compute(name, **given, **{out_name: np.full(small if page.gradient else large, 9, np.float32)})
    at = [0] * (axes + 1) + [1]
    plane = "×".join("2" * axes)
    must = f"{name}: indices{at} is {cells}; it must be 0 to {cells - 1}, inside the {plane} plane."
    assert must in capfd.readouterr().err
    want = [7, 0] if page.gradient else [0, 5] + [0] * (cells - 2)
    np.testing.assert_array_equal(got[out_name].ravel(), want)


def test_indices_outside_their_memory_block_have_no_effect_on_an_unpool(capfd: Any) -> None:
    memory = device(np.array([3, 1]))
    shape, code = (1, 1, 1, 3), acl.ACL_FORMAT_ND
    short = acl.aclCreateTensor(shape, acl.ACL_INT64, None, 0, code, shape, memory.address)
    x = np.array([5, 6, 7], np.float32).reshape(shape)
    out = np.full((1, 1, 2, 2), 9, np.float32)
    got = compute("aclnnMaxUnpool2d", self=x, indices=short, outputSize=[2, 2], out=out)["out"]
    np.testing.assert_array_equal(got.ravel(), [0, 6, 0, 5])
    text = capfd.readouterr().err
    assert text.count("aclnnMaxUnpool2d: ") == 1
    assert "indices reaches bytes 0 to 24 of a block of 16 bytes" in text


def test_an_equal_call_finds_its_plan_and_no_other_call_does() -> None:
    """Phase one is cached by metadata: what the metadata do not tell must be checked at every call."""
    name, x = "aclnnMaxPool2dWithIndices", np.ones((2, 3, 7, 11), np.float32)

    def phase_one(tensor: Any, ceil: bool = False, on: str = "atlas-a2") -> tuple[Any, int]:
        arrays = [acl.aclCreateIntArray([n]) for n in (3, 2, 1, 1)]
        out = (
            device(np.empty((2, 3, 4, 6), np.float32), "NCHW"),
            device(np.empty((2, 3, 4, 6), np.int32), "NCHW"),
        )
        with product(on):
            _, executor, status = getattr(aclnn, f"{name}GetWorkspaceSize")(tensor, *arrays, ceil, *out)
        return executor, status

    first, _ = phase_one(device(x, "NCHW"))
    second, _ = phase_one(device(x, "NCHW"))
    assert first is not second
    assert first.work is second.work
    assert first.call is second.call
    assert phase_one(device(x, "NCHW"), ceil=True)[0].call is not first.call
    assert phase_one(device(x, "NCHW"), on="atlas-training")[1] == 161002
    assert phase_one(device(x, "ND"))[1] == 161002
    assert phase_one(None)[1] == 161001
    shape, memory = x.shape, device(np.zeros(x.nbytes + 4, np.uint8))
    odd = acl.aclCreateTensor(shape, acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_NCHW, shape, memory.address + 1)
    assert phase_one(odd)[0].work.executable.copied == ("input",)
    destroyed = device(x, "NCHW")
    acl.aclDestroyTensor(destroyed)
    assert phase_one(destroyed)[1] == 161002


@pytest.mark.parametrize("number", range(40))
def test_a_mask_says_where_the_maxima_are(number: int) -> None:
    """Both ways: values and gradients have the bits of the functions that use indices, and of PyTorch."""
    random = np.random.default_rng(number)
    height, width = random.integers(1, 20, 2)
    k = [int(n) for n in random.integers(1, 5, 2)]
    s, p = [int(n) for n in random.integers(1, 4, 2)], [int(random.integers(0, n // 2 + 1)) for n in k]
    ceil, dtype = bool(number % 2), [np.float32, np.float16, bfloat16][number % 3]
    x = data((2, 3, height + k[0], width + k[1]) if number % 4 else (3, height + k[0], width + k[1]), dtype)
    want, indices = pooltide.max_pool2d(x, k, s, p, 1, ceil, return_indices=True)
    rows = (-(-prod(want.shape[-2:]) // 16) + 1) * 32
    mask = np.full((*x.shape[:-2], k[0] * k[1], rows), -1, np.int8)
    given = {"kernelSize": k, "stride": s, "padding": p, "dilation": [1], "ceilMode": ceil}
    fill = np.full(want.shape, 7, dtype)
    got = compute("aclnnMaxPool2dWithMask", self=x, **given, out=fill, indices=mask)
    np.testing.assert_array_equal(bits(got["out"]), bits(want))
    ones = np.unpackbits(got["indices"].view(np.uint8), axis=-1).sum((-1, -2))
    assert (ones == prod(want.shape[-2:])).all(), "one bit for each window"
    g = data(want.shape, dtype)
    back = compute(
        "aclnnMaxPool2dWithMaskBackward", gradOutput=g, self=x, indices=got["indices"], **given,
        gradInput=np.full_like(x, 7),
    )["gradInput"]  # fmt: skip
    np.testing.assert_array_equal(
        bits(back), bits(pooltide.max_pool2d_backward(g, x.shape, indices, k, s, p, 1, ceil))
    )
    if dtype == np.float32:
        theirs = tensor(x).requires_grad_()
        F.max_pool2d(theirs, k, s, p, 1, ceil).backward(tensor(g))
        np.testing.assert_array_equal(bits(back), bits(theirs.grad))


@pytest.mark.parametrize("level", ["warn", "strict"])
def test_a_window_without_a_bit_is_a_finding(level: str, capfd: Any) -> None:
    g = np.array([3, 5, 7, 9], np.float32).reshape(1, 1, 2, 2)
    mask = np.zeros((1, 1, 4, 64), np.int8)
    mask[0, 0, 3, 0] = 0b1011  # windows 0, 1 and 3 have their maximum in the last cell
    given = {"kernelSize": [2], "stride": [2], "padding": [0], "dilation": [1], "ceilMode": False}
    call = {"gradOutput": g, "self": np.zeros((1, 1, 4, 4), np.float32), "indices": mask, **given}
    out = np.full((1, 1, 4, 4), 8, np.float32)
    before = acl.get_checks()
    acl.set_checks(level)
    try:
        if level == "strict":
            with pytest.raises(AssertionError, match=r"no bit for window \[0, 0, 1, 0\]; it must have one"):
                compute("aclnnMaxPool2dWithMaskBackward", **call, gradInput=out)
            return
        got = compute("aclnnMaxPool2dWithMaskBackward", **call, gradInput=out)["gradInput"]
    finally:
        acl.set_checks(before)
    want = np.zeros((4, 4))
    want[1, 1], want[1, 3], want[3, 3] = 3, 5, 9
    np.testing.assert_array_equal(got[0, 0], want)
    assert (
        "aclnnMaxPool2dWithMaskBackward: indices has no bit for window [0, 0, 1, 0]" in capfd.readouterr().err
    )


def test_masks_may_be_strided() -> None:
    x = data((2, 3, 6, 8), np.float32)
    want = pooltide.max_pool2d(x, 2)
    given = {"kernelSize": [2], "stride": [], "padding": [0], "dilation": [1], "ceilMode": False}
    mask = strided_tensor(np.full((2, 3, 4, 64), 9, np.int8), "NCHW")
    out = strided_tensor(np.zeros(want.shape, np.float32), "NCHW")
    got = compute("aclnnMaxPool2dWithMask", self=strided_tensor(x, "NCHW"), **given, out=out, indices=mask)
    np.testing.assert_array_equal(got["out"], want)
    plain = compute(
        "aclnnMaxPool2dWithMask", self=x, **given, out=np.zeros(want.shape, np.float32),
        indices=np.zeros((2, 3, 4, 64), np.int8),
    )  # fmt: skip
    np.testing.assert_array_equal(got["indices"], plain["indices"])
