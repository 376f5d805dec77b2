"""The table of what runs where, held to what runs: each cell that says a device, a dtype or a layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import pooltide
from geometries import FUNCTIONS, axes_of
from pooltide import aclnn
from pooltide.arrays.array_calls import prepare_gradient as prepare_on_arrays
from pooltide.operators.catalog import in_cann
from pooltide.operators.support import ENTRANCES, by_entrance, by_layout

try:
    import torch
except ImportError:
    torch = None

PLANE, OUTPUTS = (7, 11, 13), (3, 5, 6)  # of kernel 3, stride 2
ROWS = {row[0]: dict(zip(ENTRANCES, row[1:], strict=True)) for row in by_entrance()[1]}
LAYOUTS = {row[0]: dict(zip(by_layout()[0], row, strict=True)) for row in by_layout()[1]}
REGIONS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
each_function = pytest.mark.parametrize("function", FUNCTIONS)


def lying(array: Any, how: str) -> Any:
    if how == "contiguous":
        return array
    if how == "channels-last":
        return np.moveaxis(np.moveaxis(array, 1, -1).copy(), -1, 1)
    return np.repeat(array, 2, -1)[..., ::2]


def arguments(function: str, dtype: Any, how: str) -> dict[str, Any]:
    axes, random = axes_of(function), np.random.default_rng(11)
    shape = (2, 5, *OUTPUTS[3 - axes :])
    given: dict[str, Any] = {
        "grad_output": lying(random.standard_normal(shape).astype(dtype), how),
        "input": (2, 5, *PLANE[3 - axes :]),
    }
    if "max" in function:
        given["indices"] = lying(random.integers(0, 13, shape), how)
    return given if "adaptive" in function else given | {"kernel_size": 3, "stride": 2}


def attributes(function: str) -> tuple[Any, ...]:
    if "adaptive" in function:
        return ()
    rest = (1, False) if "max" in function else (False, True, None)
    return (3, 2, 0, *rest[: 2 if "1d" in function else None])


def test_every_gradient_and_forward_has_a_row_and_no_cell_is_empty() -> None:
    forwards = [function.removesuffix("_backward") for function in FUNCTIONS]
    unpools = [f"max_unpool{n}d{end}" for n in (1, 2, 3) for end in ("", "_backward")]
    pools = [f"{name}{end}" for name in REGIONS for end in ("", "_backward")]
    assert sorted(ROWS) == sorted([*FUNCTIONS, *forwards, *unpools, *pools])
    assert all(hasattr(pooltide, name) for name in ROWS)
    assert all(cell for row in ROWS.values() for cell in row.values())
    assert set(LAYOUTS) == set(ENTRANCES)
    assert all(cell for row in LAYOUTS.values() for cell in row.values())


@pytest.mark.skipif(torch is None, reason="needs PyTorch")
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_unpools_run_where_the_table_says(axes: int) -> None:
    """What each value of the table means is tested in test_unpool.py and test_torch_unpool.py."""
    import pooltide.torch as pt

    name = f"max_unpool{axes}d"
    assert ROWS[name]["patch()"] == ("as max_unpool2d" if axes == 1 else "CPU, CUDA")
    assert ROWS[f"{name}_backward"]["patch()"] == "PyTorch's, a gather"
    assert hasattr(pt.functional, name)
    assert hasattr(pt, f"{name}_backward")


@pytest.mark.skipif(torch is None, reason="needs PyTorch")
@pytest.mark.parametrize("name", REGIONS)
def test_pools_over_regions_run_where_the_table_says(name: str) -> None:
    """What each value of the table means is tested in test_torch_regions.py, for CUDA in test_gpu_regions.py."""
    import pooltide.torch as pt
    from pooltide.torch.patching import region_overrides

    assert ROWS[name]["patch()"] == ROWS[f"{name}_backward"]["patch()"] == "CPU, CUDA: torchvision's"
    assert {name, f"_{name}_backward"} <= set(region_overrides.arguments())
    assert hasattr(pt.functional, name)
    assert hasattr(pt, f"{name}_backward")
    for operator in (name, f"{name}_backward"):
        keys = ("CPU", "CUDA")
        assert all(
            torch._C._dispatch_has_kernel_for_dispatch_key(f"pooltide::{operator}", key) for key in keys
        )


def test_cann_has_what_its_documents_have() -> None:
    for name, row in ROWS.items():
        operator = in_cann(name)
        there = operator is not None and hasattr(aclnn, operator.name)
        assert row["CANN, Python and C"] == ("CPU" if there else "not in CANN")


@each_function
@pytest.mark.parametrize("dtype", LAYOUTS["NumPy"]["dtypes"].split())
def test_numpy(function: str, dtype: str) -> None:
    """What the table calls in place is planned without a copy, what it calls copied with one."""
    kind = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    must = getattr(pooltide, function)(**arguments(function, kind, "contiguous"))
    forward = getattr(pooltide, function.removesuffix("_backward"))
    sizes = (OUTPUTS[3 - axes_of(function) :],) if "adaptive" in function else (3, 2)
    pooled = forward(must, *sizes)
    for how in ("contiguous", "channels-last", "other strides"):
        given = arguments(function, kind, how)
        out = lying(np.full_like(must, np.nan), how)
        assert (getattr(pooltide, function)(**given, out=out) == must).all()
        at = given.get("indices")
        call = given["grad_output"], given["input"], at, attributes(function)
        executable = prepare_on_arrays(function, *call, out).executable
        assert executable is not None
        assert (LAYOUTS["NumPy"][how] == "copied") == bool(executable.copied), how
        assert (forward(lying(must, how), *sizes) == pooled).all()


def tensor(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    if array.dtype != bfloat16:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


@pytest.mark.skipif(torch is None, reason="needs PyTorch")
@each_function
@pytest.mark.parametrize("dtype", LAYOUTS["pooltide.torch"]["dtypes"].split())
def test_torch_on_the_cpu(function: str, dtype: str) -> None:
    import pooltide.torch as pt
    from pooltide.torch.tensor_calls import prepare_gradient

    kind = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    must = tensor(getattr(pooltide, function)(**arguments(function, kind, "contiguous")))
    assert hasattr(pt.functional, function.removesuffix("_backward"))
    for how in ("contiguous", "channels-last", "other strides"):
        given = {name: tensor(value) for name, value in arguments(function, kind, how).items()}
        assert torch.equal(getattr(pt, function)(**given), must)
        call = given["grad_output"], given["input"], None, given.get("indices"), attributes(function)
        in_place = how == "contiguous" or (how == "channels-last" and axes_of(function) > 1)
        executable = prepare_gradient(function, *call).executable
        assert executable is not None
        assert bool(executable.copied) != in_place, how


@pytest.mark.skipif(torch is None, reason="needs PyTorch")
@each_function
@pytest.mark.parametrize("dtype", LAYOUTS["pooltide.torch"]["dtypes"].split())
def test_patched(function: str, dtype: str, monkeypatch: Any) -> None:
    """The gradient that the table names is the one that PyTorch's pool takes from us."""
    import pooltide.torch as pt
    from pools import watch_patched

    pool = getattr(torch.nn.functional, function.removesuffix("_backward"))
    axes = axes_of(function)
    sizes = (OUTPUTS[3 - axes :],) if "adaptive" in function else (3, 2)
    x = torch.randn(2, 5, *PLANE[3 - axes :], dtype=getattr(torch, dtype), requires_grad=True)
    try:
        y = pool(x, *sizes)
    except RuntimeError as missing:
        pytest.skip(f"PyTorch has no such forward: {missing}")
    reached: list[str] = []
    watch_patched(monkeypatch, reached.append)
    with pt.patch():
        y.sum().backward()
    assert reached == [ROWS[function]["patch()"].replace("CPU, CUDA", function).removeprefix("as ")]
