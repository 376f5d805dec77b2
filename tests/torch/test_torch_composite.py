"""Patched operators on tensor subclasses, backward and in forward mode: PyTorch's own tests, and every gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
composite = pytest.importorskip("torch.testing._internal.composite_compliance")

from pools import quiet_patch  # noqa: E402
from pooltide.torch.aten import ATEN  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402

aten = torch.ops.aten
PATCHES = [False, True] if can_call_aten() else [False]
each_patch = pytest.mark.parametrize("forward", PATCHES, ids=["gradients", "forwards"][: len(PATCHES)])
INFOS = [info for info in methods.op_db if "_pool" in info.name and info.supports_forward_ad]


def check(operator: Callable[..., Any], *arguments: Any, **more: Any) -> None:
    composite.check_forward_ad_formula(operator, list(arguments), more, None, torch.testing.assert_close)


@each_patch
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_samples_of_pytorch(info: Any, forward: bool) -> None:
    samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=True))
    with quiet_patch(forward):
        for given in samples[:: max(1, len(samples) // 3)]:
            check(info.get_op(), given.input, *given.args, **given.kwargs)


@each_patch
@pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)
def test_a_subclass_sees_the_gradient_whose_cotangent_is_none(info: Any, forward: bool) -> None:
    samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=True))
    process = {"output_process_fn_grad": lambda result: result, "assert_equal_fn": torch.testing.assert_close}
    with quiet_patch(forward):
        for given in samples[:: max(1, len(samples) // 3)]:
            taken = given.input, *given.args
            composite.check_backward_formula(info.get_op(), taken, given.kwargs, **process)


def arguments_of(function: str) -> tuple[Any, ...]:
    """What aten's operator takes after grad_output and the input: two windows on each axis."""
    axes = int(function[-len("d_backward") - 1])
    two, one, none = [2] * axes, [1] * axes, [0] * axes
    indices = (torch.zeros((1, 2, *two), dtype=torch.int64),) if "max" in function else ()
    if "adaptive" in function:
        return indices
    return (two, two, none, *((one, False, *indices) if indices else (False, True, None)))


@each_patch
@pytest.mark.parametrize("function", ATEN)
def test_gradients_whose_tangents_are_of_either_tensor(function: str, forward: bool) -> None:
    axes = int(function[-len("d_backward") - 1])
    operator, rest = getattr(aten, ATEN[function]).default, arguments_of(function)
    x, g = (torch.randn(1, 2, *[n] * axes) for n in (4, 2))
    ways: list[Callable[..., Any]] = [
        lambda x: operator(torch.ones_like(x[(..., *[slice(2)] * axes)]), x, *rest),  # a subclass, as x is
        lambda g: operator(g, x, *rest),
        lambda g, x: operator(g, x, *rest),
    ]
    with quiet_patch(forward):
        for way, given in zip(ways, ((x,), (g,), (g, x)), strict=True):
            check(way, *(tensor.clone().requires_grad_() for tensor in given))
