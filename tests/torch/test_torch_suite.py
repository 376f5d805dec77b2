"""PyTorch's own tests of its pools, as the wheel brings them, on ours: patched, and in place of its pools.

From OpInfo: gradients, second gradients, forward mode and forward over reverse, each with batches where
PyTorch claims them; views; error inputs. From ModuleInfo: gradients, second gradients, memory formats, views,
copies and pickles, error inputs.

Each check of a case runs in plain PyTorch first, and counts only if it passes there. A max pool has many
hundred samples; by default a few of each pool run. POOLTIDE_SUITE=all runs them all, in many minutes.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")
methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
modules = pytest.importorskip("torch.testing._internal.common_modules")

import torch.nn.functional as F  # noqa: E402
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from geometries import FUNCTIONS  # noqa: E402
from pools import quiet_patch  # noqa: E402
from shares import fast_first, fast_if, fast_some, is_2d  # noqa: E402

POOLS = [function.removesuffix("_backward") for function in FUNCTIONS]
UNPOOLS = ["max_unpool2d", "max_unpool1d", "max_unpool3d"]  # PyTorch has no samples of their modules
MODES = fast_first(["patched", "functional", "forward patched"], 2)
EVERYTHING = os.environ.get("POOLTIDE_SUITE") == "all"

# What differs from PyTorch and can't be mended: (mode, pool, check), and the reason. Each must still differ.
DIFFERENCES: dict[tuple[str, str, str], str] = {}


@contextmanager
def mode(name: str, monkeypatch: Any) -> Iterator[None]:
    if name != "functional":
        with quiet_patch(forward=name == "forward patched"):
            yield
        return
    with monkeypatch.context() as replaced:
        for pool in POOLS + UNPOOLS:
            replaced.setattr(F, pool, getattr(pt.functional, pool))
        yield


@dataclass(frozen=True, eq=False)
class Case:
    """One call: of a pool in torch.nn.functional, looked up when it is made, or of a module."""

    text: str
    x: Any
    run: Callable[[Any], Any]  # of the input
    info: Any  # OpInfo or ModuleInfo
    module: Any = None
    error: tuple[type[Exception], str] | None = None  # what the call must raise, and its text

    def values(self, x: Any) -> Any:
        y = self.run(x)
        return y[0] if isinstance(y, tuple) else y

    def fresh(self) -> Any:
        return self.x.detach().clone(memory_format=torch.preserve_format).requires_grad_()


def of_function(info: Any, pool: str, sample: Any, error: tuple[type[Exception], str] | None = None) -> Case:
    def run(x: Any) -> Any:
        return getattr(F, pool)(x, *sample.args, **sample.kwargs)

    x = sample.input
    text = f"{pool}({tuple(getattr(x, 'shape', ()))}, {sample.args}, {sample.kwargs})"
    return Case(text, x, run, info, error=error)


def op_info(pool: str, variant: str = "") -> Any:
    (info,) = [
        info
        for info in methods.op_db
        if info.name == f"nn.functional.{pool}" and info.variant_test_name == variant
    ]
    return info


@cache
def functions(pool: str) -> list[Case]:
    info = op_info(pool, "grad" if pool in UNPOOLS else "")  # without equal indices, which gradcheck needs
    torch.manual_seed(3)
    samples = info.sample_inputs("cpu", torch.float64, requires_grad=True)
    return [of_function(info, pool, sample) for sample in samples]


def some(cases: list[Case], most: int) -> list[Case]:
    """About so many of them, unless all are asked for; an odd step meets each choice of arguments."""
    return cases if EVERYTHING else cases[:: max(1, len(cases) // most) | 1]


@cache
def function_errors(pool: str) -> list[Case]:
    info = op_info(pool)
    if pool in UNPOOLS and info.error_inputs_func is None:
        pytest.skip(f"PyTorch {torch.__version__} has no error inputs of unpools")
    errors = [
        of_function(info, pool, error.sample_input, (error.error_type, error.error_regex))
        for error in info.error_inputs("cpu")
    ]
    assert errors
    return errors


def module_info(pool: str) -> Any:
    name = "nn." + "".join(word.capitalize() for word in pool.split("_")).replace("pool", "Pool")
    (info,) = [info for info in modules.module_db if info.name == name]
    return info


def of_module(info: Any, given: Any, error: tuple[type[Exception], str] | None = None) -> Case:
    made = given.constructor_input
    module = info.module_cls(*made.args, **made.kwargs)
    x, *rest = given.forward_input.args
    assert not rest
    return Case(f"{module}({tuple(x.shape)})", x, module, info, module, error)


@cache
def module_cases(pool: str) -> list[Case]:
    info = module_info(pool)
    torch.manual_seed(3)
    cases = [
        of_module(info, given) for given in info.module_inputs_func(info, "cpu", torch.float64, True, False)
    ]
    assert cases
    return cases


@cache
def module_errors(pool: str) -> list[Case]:
    info = module_info(pool)
    if info.module_error_inputs_func is None:
        return []
    found = info.module_error_inputs_func(info, "cpu", torch.float64, True, False)
    return [
        of_module(info, error.module_error_input, (error.error_type, error.error_regex)) for error in found
    ]


def gradients(case: Case) -> None:
    info = case.info
    gradcheck(
        case.values, case.fresh(), fast_mode=True, check_grad_dtypes=True, check_undefined_grad=True,
        check_batched_grad=getattr(info, "check_batched_grad", True), nondet_tol=info.gradcheck_nondet_tol,
    )  # fmt: skip


def second_gradients(case: Case) -> None:
    info = case.info
    for strided in (False, True):
        gradgradcheck(
            case.values, case.fresh(), fast_mode=True, check_grad_dtypes=True, gen_non_contig_grad_outputs=strided,
            check_batched_grad=getattr(info, "check_batched_gradgrad", True), nondet_tol=info.gradcheck_nondet_tol,
        )  # fmt: skip


def forward_mode(case: Case) -> None:
    gradcheck(
        case.values, case.fresh(), fast_mode=True, check_forward_ad=True, check_backward_ad=False,
        check_undefined_grad=False, check_batched_forward_grad=case.info.check_batched_forward_grad,
    )  # fmt: skip


def forward_over_reverse(case: Case) -> None:
    gradgradcheck(
        case.values, case.fresh(), fast_mode=True, check_fwd_over_rev=True, check_rev_over_rev=False,
        check_undefined_grad=False,
    )  # fmt: skip


def pulled(case: Case, x: Any) -> tuple[Any, ...]:
    """Everything that the call returns, and the gradient, to be compared with plain PyTorch's."""
    found = case.run(x)
    returned = found if isinstance(found, tuple) else (found,)
    random = torch.Generator().manual_seed(1)
    g = torch.randn(returned[0].shape, generator=random, dtype=torch.float64)
    return *returned, *torch.autograd.grad(returned[0], x, g)


def views(case: Case) -> Any:
    """Of memory with holes, reversed axes, and lazily negated."""
    x = case.x.detach()
    strided = torch.stack([x, x], -1)[..., 1]
    turned = x.transpose(-1, 0).contiguous().transpose(-1, 0)
    negated = torch._neg_view(-x)
    return [pulled(case, view.requires_grad_()) for view in (strided, turned, negated)]


def memory_formats(case: Case) -> Any:
    """The values, and how results lie in memory."""
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(case.x.dim())
    if form is None:
        return None
    many = torch.cat([case.x.detach()] * 3, 1) if case.x.shape[1] == 1 else case.x.detach()
    found = pulled(case, many.to(memory_format=form).requires_grad_())
    return found, [result.stride() for result in found[:-1]]


def copies(case: Case) -> Any:
    """A copy and a pickle of a module compute the same."""
    assert case.module is not None
    buffer = io.BytesIO()
    torch.save(case.module, buffer)
    buffer.seek(0)
    must = pulled(case, case.fresh())
    for module in (copy.deepcopy(case.module), torch.load(buffer, weights_only=False)):
        again = Case(case.text, case.x, module, case.info)
        torch.testing.assert_close(pulled(again, case.fresh()), must, rtol=0, atol=0)
    return must


def errors(case: Case) -> None:
    assert case.error is not None
    kind, text = case.error
    with pytest.raises(kind, match=text):
        case.run(case.x)


OF_FUNCTIONS = [gradients, second_gradients, forward_mode, forward_over_reverse, views]
OF_MODULES = [gradients, second_gradients, views, memory_formats, copies]


def outcome(check: Callable[[Case], Any], case: Case) -> tuple[Any, str | None]:
    """What a check found, or why it failed."""
    torch.manual_seed(7)
    try:
        return check(case), None
    except (Exception, pytest.fail.Exception) as error:
        return None, f"{type(error).__name__}: {error}"


@cache
def plain(check: Callable[[Case], Any], case: Case) -> tuple[Any, str | None]:
    assert not pt.is_patched()
    return outcome(check, case)


def hold(name: str, pool: str, check: Callable[[Case], Any], cases: list[Case], monkeypatch: Any) -> None:
    """Each case that passes in plain PyTorch passes in this mode, with the same results."""
    must = [plain(check, case) for case in cases]
    counted = [(case, found) for case, (found, fault) in zip(cases, must, strict=True) if fault is None]
    assert counted, f"plain PyTorch passes none of them: {must[0][1]}"
    wrong = []
    with mode(name, monkeypatch):
        for case, expected in counted:
            found, fault = outcome(check, case)
            try:
                assert fault is None, fault
                torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13, equal_nan=True)
            except AssertionError as difference:
                wrong.append(f"{case.text}: {difference}")
    if reason := DIFFERENCES.get((name, pool, check.__name__)):
        assert wrong, f"this no longer differs from PyTorch; take it off the list: {reason}"
        return
    assert not wrong, f"{len(wrong)} of {len(counted)}; the first: {wrong[0]}"


@pytest.mark.parametrize("check", OF_FUNCTIONS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("pool", fast_some(POOLS, 2) + fast_first(UNPOOLS))
def test_functions(pool: str, name: str, check: Any, monkeypatch: Any) -> None:
    hold(name, pool, check, some(functions(pool), 20 if check is views else 3), monkeypatch)


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("pool", fast_if(is_2d, POOLS + UNPOOLS))
def test_errors(pool: str, name: str, monkeypatch: Any) -> None:
    cases = function_errors(pool) + ([] if pool in UNPOOLS else module_errors(pool))
    hold(name, pool, errors, cases, monkeypatch)


@pytest.mark.parametrize("check", OF_MODULES, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("pool", fast_some(POOLS, 2))
def test_modules(pool: str, name: str, check: Any, monkeypatch: Any) -> None:
    hold(name, pool, check, some(module_cases(pool), 2 if "gradients" in check.__name__ else 20), monkeypatch)


def test_both_modes_reach_our_pools(monkeypatch: Any) -> None:
    must = F.avg_pool2d
    with mode("functional", monkeypatch):
        assert [getattr(F, pool) for pool in POOLS] == [getattr(pt.functional, pool) for pool in POOLS]
        assert (
            "AverageBackward"
            in type(F.avg_pool2d(torch.ones(1, 1, 2, 2, requires_grad=True), 2).grad_fn).__name__
        )
    assert F.avg_pool2d is must
    with mode("patched", monkeypatch):
        assert pt.is_patched()
    assert not pt.is_patched()


def test_a_difference_is_seen(monkeypatch: Any) -> None:
    """A pool whose gradient is wrong does not pass."""
    real = pt.functional.avg_pool2d
    monkeypatch.setattr(
        pt.functional, "avg_pool2d", lambda x, *args, **given: real(x.detach() * 2 - x, *args, **given)
    )
    with pytest.raises(AssertionError, match="the first: avg_pool2d"):
        hold("functional", "avg_pool2d", views, functions("avg_pool2d"), monkeypatch)
