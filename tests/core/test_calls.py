"""The cache of calls: one key and one bound for all entrances, and a backend is chosen for each call anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pooltide
from pooltide.kernels import cpu, plan, reference
from pooltide.kernels.calls import CALLS, call_key

G = np.arange(2 * 3 * 5 * 6, dtype=np.float32).reshape(2, 3, 5, 6)
X = np.arange(2 * 3 * 11 * 13, dtype=np.float32).reshape(2, 3, 11, 13)
AT = np.zeros(G.shape, np.int64)


def arrays() -> dict[str, Callable[[], Any]]:
    return {
        "gradient of averages": lambda: pooltide.avg_pool2d_backward(G, X.shape, 3, 2),
        "gradient of maxima": lambda: pooltide.max_pool2d_backward(G, X, AT, 3, 2),
        "gradient of strided arrays": lambda: pooltide.avg_pool2d_backward(G[..., ::-1], X.shape, 3, 2),
        "averages": lambda: pooltide.avg_pool2d(X, 3, 2),
        "maxima": lambda: pooltide.max_pool2d(X, 3, 2, return_indices=True),
    }


def tensors() -> dict[str, Callable[[], Any]]:
    torch = pytest.importorskip("torch")
    import pooltide.torch as pt

    g, x, at = torch.from_numpy(G), torch.from_numpy(X), torch.from_numpy(AT)
    leaf = x.clone().requires_grad_()
    shape = tuple(x.shape)
    aten = torch.ops.aten.avg_pool2d_backward.default

    def patched() -> Any:
        with pt.patch():
            return aten(g, x, [3, 3], [2, 2], [0, 0], False, True, None)

    def derived(pool: Callable[..., Any]) -> Any:
        return torch.autograd.grad(pool(leaf, 3, 2), leaf, g)[0]

    return {
        "gradient of averages": lambda: pt.avg_pool2d_backward(g, shape, 3, 2),
        "gradient of maxima": lambda: pt.max_pool2d_backward(g, shape, at, 3, 2),
        "operator": lambda: torch.ops.pooltide.avg_pool2d_backward(
            g, [11, 13], [3, 3], [2, 2], [0, 0], False, True, None, False, True, False
        ),
        "derivative of averages": lambda: derived(pt.functional.avg_pool2d),
        "derivative of maxima": lambda: derived(pt.functional.max_pool2d),
        "patch": patched,
    }


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends that were prepared or run, in order."""
    found: list[str] = []
    for name, module, function in (("cpu", cpu, "prepare"), ("reference", reference, "run")):
        real = getattr(module, function)
        monkeypatch.setattr(
            module, function, lambda *args, name=name, real=real: found.append(name) or real(*args)
        )
    return found


@pytest.mark.parametrize("entrance", [arrays, tensors], ids=lambda entrance: entrance.__name__)
def test_the_environment_chooses_the_backend_of_one_call(
    entrance: Callable[[], dict[str, Callable[[], Any]]], used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice holds for no later call, whether equal calls were made before it or not."""
    for what, call in entrance().items():
        for first in (None, "reference"):
            CALLS.clear()
            choices = [first, "reference" if first is None else None, first]
            for choice in choices:
                if choice is None:
                    monkeypatch.delenv(plan.ENVIRONMENT, raising=False)
                else:
                    monkeypatch.setenv(plan.ENVIRONMENT, choice)
                used.clear()
                call()
                assert ("reference" in used) == (choice == "reference"), (what, choices, used)
                call()  # from the cache
                assert ("reference" in used) == (choice == "reference"), (what, choices, used)
            monkeypatch.setenv(plan.ENVIRONMENT, "nobody")
            if what != "patch":  # there PyTorch computes it, with a warning
                with pytest.raises(RuntimeError, match="backend 'nobody' is unknown"):
                    call()
            monkeypatch.delenv(plan.ENVIRONMENT)


def test_the_environment_chooses_who_computes_one_forward_on_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch computes the forwards that our compiled kernels do not."""
    torch = pytest.importorskip("torch")
    from pooltide.problem.forwards import StridedArguments
    from pooltide.torch.pools.forward import prepare_pool

    for _ in range(2):
        for choice in ("cpu", "reference", ""):
            monkeypatch.setenv(plan.ENVIRONMENT, choice)
            pool = prepare_pool("avg_pool2d", torch.from_numpy(X), StridedArguments(3, 2, 0, 1, False))
            assert (pool is None) == (choice == "reference")


@pytest.mark.parametrize("entrance", [arrays, tensors], ids=lambda entrance: entrance.__name__)
def test_an_equal_call_is_known(entrance: Callable[[], dict[str, Callable[[], Any]]]) -> None:
    for what, call in entrance().items():
        CALLS.clear()
        call()
        once = set(CALLS.known)
        call()
        assert once, what
        assert set(CALLS.known) == once, what


def test_every_part_of_a_call_is_in_its_key() -> None:
    """Calls that differ in one argument alone get their own results, in any order."""
    g, at = np.random.default_rng(0).standard_normal((2, 3, 5, 6)), AT + 3
    calls: list[tuple[Any, ...]] = [
        (g, X.shape, 3, 2),
        (g.astype(np.float32), X.shape, 3, 2),
        (g, (2, 3, 12, 13), 3, 2),
        (g, X.shape, (3, 3), 2),
        (g, X.shape, 3, (2, 2)),
        (g, (2, 3, 9, 11), 3, 2, 1),
        (g, (2, 3, 9, 11), 3, 2, 1, False, False),
        (g, X.shape, 3, 2, 0, False, True, 5),
        (np.asfortranarray(g), X.shape, 3, 2),
    ]
    for _ in range(2):
        for call in calls:
            must = pooltide.avg_pool2d_backward(*call, out=np.full(call[1], np.nan, call[0].dtype))
            assert np.array_equal(pooltide.avg_pool2d_backward(*call), must)
    with pytest.raises(TypeError, match="ceil_mode"):
        pooltide.avg_pool2d_backward(g, X.shape, 3, 2, 0, 0)
    for indices in (at, at.astype(np.int32)):
        assert pooltide.max_pool2d_backward(g, X.shape, indices, 3, 2).sum() == pytest.approx(g.sum())


def test_a_read_only_result_is_refused_though_the_call_is_known() -> None:
    out = np.empty(X.shape, np.float32)
    pooltide.avg_pool2d_backward(G[..., ::-1], X.shape, 3, 2, out=out)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        pooltide.avg_pool2d_backward(G[..., ::-1], X.shape, 3, 2, out=out)


def test_a_value_that_is_not_plain_has_no_key() -> None:
    assert call_key("f", (), (1, (2, 3), None, True)) is not None
    assert call_key("f", (), (1, [2, 3])) is None
    assert call_key("f", (), (True,)) != call_key("f", (), (1,))
    assert call_key("f", (), ((True, 2),)) != call_key("f", (), ((1, 2),))


@pytest.mark.parametrize("call", [
    lambda bad: pooltide.max_pool2d_backward(G, X, bad, 3, 2),
    lambda bad: pooltide.max_unpool2d(G, bad, 2),
    lambda bad: pooltide.max_unpool2d_backward(np.zeros((2, 3, 10, 12), np.float32), G.shape, bad, 2),
])  # fmt: skip
def test_a_bad_index_is_computed_once(call: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's answer names the index; nothing runs again to find it."""
    if not cpu.BUILT:
        pytest.skip("NOT TESTED: the extension is not built")
    bad = AT.copy()
    bad[1, 2, 3, 4] = 999
    monkeypatch.setattr(cpu, "run", None)
    for _ in range(2):
        with pytest.raises(IndexError, match=r"indices\[1, 2, 3, 4\] is 999; it must be 0 to "):
            call(bad)
