"""The texts of our errors have PyTorch's text for the same call, which programs and tests look for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pooltide.torch as pt  # noqa: E402
from geometries import FUNCTIONS  # noqa: E402
from pools import quiet_patch  # noqa: E402
from pooltide.torch import aten, gradients  # noqa: E402
from pooltide.torch.patching import gradient_overrides  # noqa: E402
from pooltide.torch.pools import forward  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402
from shares import fast_if, is_2d  # noqa: E402

F = torch.nn.functional
POOLS = [function.removesuffix("_backward") for function in FUNCTIONS]
GRADIENTS = list(aten.ATEN.items())


def raised(call: Callable[..., Any], *arguments: Any, **more: Any) -> Exception | None:
    try:
        call(*arguments, **more)
    except Exception as error:
        return error
    return None


def bad_pools(name: str, count: int) -> Iterator[tuple[Any, list[Any], dict[str, bool]]]:
    """Tensors and arguments, most of them bad."""
    draw, axes = random.Random(name), int(name[-2])

    def sizes() -> Any:
        number = lambda: draw.choice([1, 2, 2, 2, 3, 0, -1, 7])  # noqa: E731
        several = [number() for _ in range(draw.choice([axes, axes, axes + 1]))]
        odd = 2.5 if "adaptive" in name else None  # our adaptive pools take None for the input's size
        return draw.choice([number(), number(), several, several, odd, 2.5])

    for _ in range(count):
        rank = draw.choice([axes, axes + 1, axes + 2, axes + 2, axes + 3])
        dtype = draw.choice([torch.float32] * 6 + [torch.int64, torch.complex64, torch.bool, torch.bfloat16])
        x = torch.zeros([draw.choice([0, 1, 2, 5, 6]) for _ in range(rank)], dtype=dtype)
        arguments = [sizes()]
        if "adaptive" not in name:
            arguments += [draw.choice([None, sizes()]), draw.choice([0, sizes()])]
            arguments += [draw.choice([1, sizes()])] * name.startswith("max")
        yield x, arguments, {"return_indices": draw.random() < 0.5} if "max" in name else {}


@pytest.mark.parametrize("name", fast_if(is_2d, POOLS))
def test_bad_arguments_of_pools(name: str) -> None:
    refused = 0
    for x, arguments, more in bad_pools(name, 400):
        theirs = raised(getattr(F, name), x, *arguments, **more)
        if theirs is None or "object of type" in str(theirs):  # not PyTorch's text, but Python's
            continue
        ours = raised(getattr(pt.functional, name), x, *arguments, **more)
        if ours is None and "max_pool" not in name:
            assert x.dtype == torch.bfloat16, (x, arguments, theirs)  # PyTorch has no such kernel, we do
            continue
        assert str(theirs) in str(ours), (x.shape, x.dtype, arguments, more)
        assert isinstance(ours, RuntimeError) or type(ours) is type(theirs)
        refused += 1
    assert refused > 100


@pytest.mark.parametrize("axes", [1, 2])
def test_bad_arguments_of_patched_maxima_that_autograd_records(axes: int) -> None:
    """PyTorch's max_pool1d has other words for them than max_pool1d_with_indices."""
    pool = getattr(torch, f"max_pool{axes}d")
    x = torch.zeros(2, 3, *(9,) * axes, requires_grad=True)
    for arguments in ([20], [3, 0], [3, 2, 2], [3, 2, -1], [3, 2, 0, 0], [0], [[2] * 4]):
        theirs = raised(pool, x, *arguments)
        with quiet_patch(forward=True):
            ours = raised(pool, x, *arguments)
        assert (str(ours), type(ours)) == (str(theirs), type(theirs))


def test_a_tensor_without_its_storage_is_not_handed_to_pytorch() -> None:
    x = torch.zeros(1, 2, 4, 4)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"input has storage of 0 bytes") as caught:
        pt.functional.max_pool2d(x, 2)
    assert "PyTorch says" not in str(caught.value)


def bad_gradients(name: str, count: int) -> Iterator[tuple[Any, ...]]:
    """The arguments of aten's gradients, most of them bad; all indices are 0."""
    draw, axes = random.Random(name), int(name.partition("d_")[0][-1])

    def changed(shape: list[int]) -> list[int]:
        shape = list(shape)
        if draw.random() < 0.3:
            shape[draw.randrange(len(shape))] = draw.choice([0, 1, 2, 3, 4])
        return draw.choice([shape] * 8 + [shape[1:], [1, *shape]])

    def each(*numbers: int) -> list[int]:
        return [draw.choice(numbers)] * draw.choice([axes, axes, axes, axes + 1])

    for _ in range(count):
        lead = draw.choice([[1, 2], [3, 2], [2]])
        x, shape = torch.zeros(changed(lead + [4] * axes)), changed(lead + [2] * axes)
        g = torch.zeros(shape, dtype=draw.choice([torch.float32] * 8 + [torch.float64]))
        at = torch.zeros(
            draw.choice([shape] * 4 + [changed(shape)]), dtype=draw.choice([torch.int64] * 8 + [torch.int32])
        )
        if "adaptive" in name:
            yield (g, x, at) if "max" in name else (g, x)
            continue
        windows = each(2, 2, 2, 0, -1), each(2, 2, 0), each(0, 0, 0, 5, -1)
        if "max" in name:
            yield g, x, *windows, each(1, 1, 0), False, at
        else:
            yield g, x, *windows, False, True, draw.choice([None, None, 0])


@pytest.mark.skipif(not can_call_aten(), reason="this release has no way back to PyTorch's kernels")
@pytest.mark.parametrize(("function", "name"), GRADIENTS, ids=[name for _, name in GRADIENTS])
def test_bad_arguments_of_patched_gradients(function: str, name: str) -> None:
    operator, refused = getattr(torch.ops.aten, name).default, 0
    for arguments in bad_gradients(name, 500):
        if not aten._is_checked(function, [a for a in arguments if torch.is_tensor(a)]):
            with quiet_patch(forward=False):  # PyTorch would leave its memory here
                assert "PyTorch says" not in str(raised(operator, *arguments))
            continue
        theirs = raised(operator, *arguments)
        if theirs is None:
            continue
        with quiet_patch(forward=False):
            ours = raised(operator, *arguments)
        if ours is None:  # we take indices of 32 bits, and read only the shape of the input
            assert "type" in str(theirs), (arguments, theirs)
            continue
        assert isinstance(ours, RuntimeError)
        assert str(theirs) in str(ours), [getattr(a, "shape", a) for a in arguments]
        refused += 1
    assert refused > 60


@pytest.mark.parametrize("name", [pool for pool in POOLS if "adaptive" in pool])
def test_gradients_of_empty_results(name: str) -> None:
    x = torch.randn(1, 2, *[4] * int(name[-2]), requires_grad=True)
    size = [2] * (int(name[-2]) - 1) + [0]
    texts = []
    for module in (F, pt.functional):
        y = getattr(module, name)(x, size).sum()
        texts.append(str(raised(y.backward)))
    assert "non-zero size for non-batch dimensions" in texts[0]
    if not can_call_aten():  # 2.6 judges on meta, in other words
        texts[0] = "size for non-batch dimensions"
    assert texts[0] in texts[1]


def test_a_bad_index_is_not_handed_to_pytorch() -> None:
    """PyTorch would write outside the plane."""
    g, x, at = torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 4, 4), torch.full((1, 1, 2, 2), 99)
    with quiet_patch(forward=False), pytest.raises(IndexError, match="must be") as caught:
        torch.ops.aten.adaptive_max_pool2d_backward(g, x, at)
    assert "PyTorch says" not in str(caught.value)


def test_large_tensors_are_judged_on_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aten, "_LARGE", 3)
    monkeypatch.setattr(aten, "CPU_KERNELS", {})
    with (
        quiet_patch(forward=False),
        pytest.raises(RuntimeError, match="PyTorch says: Expected a tensor of dim"),
    ):
        torch.ops.aten.avg_pool2d_backward(
            torch.zeros(1, 3, 2, 2), torch.zeros(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, None
        )


@pytest.mark.skipif(not can_call_aten(), reason="this release has no way back to PyTorch's kernels")
@pytest.mark.parametrize("function", list(aten.OUT_FORMS))
def test_bad_outs_of_patched_gradients(function: str) -> None:
    """PyTorch checks grad_input in the out form only."""
    name = aten.OUT_FORMS[function].removesuffix(".grad_input")
    operator, axes = getattr(torch.ops.aten, name).grad_input, int(name.partition("d_")[0][-1])
    g, x = torch.zeros(1, 2, *[2] * axes), torch.zeros(1, 2, *[4] * axes)
    windows = [] if "adaptive" in name else [[2] * axes, [2] * axes, [0] * axes]
    if windows:
        windows += [[1] * axes, False] if "max" in name else [False, True, None]
    indices = [torch.zeros(g.shape, dtype=torch.int64)] if "max" in name else []
    for dtype in (torch.float64, torch.int64, torch.bool):
        out = torch.zeros(x.shape, dtype=dtype)
        theirs = raised(operator, g, x, *windows, *indices, grad_input=out)
        with quiet_patch(forward=False):
            ours = raised(operator, g, x, *windows, *indices, grad_input=out)
        if theirs is not None:
            assert isinstance(ours, RuntimeError)
            assert str(theirs) in str(ours)
    assert theirs is not None or "3d" in name  # the last kernels that check nothing


def no_room(call: Callable[[], Any]) -> str:
    with pytest.raises(MemoryError) as caught:
        call()
    assert isinstance(caught.value, RuntimeError)
    return str(caught.value)


@pytest.mark.parametrize("name", ["adaptive_avg_pool2d", "adaptive_max_pool2d"])
def test_results_that_no_memory_holds(name: str) -> None:
    """Programs look for PyTorch's text to make their batches smaller."""
    x, texts = torch.zeros(1, 1, 8, 8), []
    theirs = str(raised(getattr(F, name), x, 2**24))
    assert "can't allocate memory" in theirs
    for leaf in (x, x.clone().requires_grad_()):
        texts.append(no_room(lambda leaf=leaf: getattr(pt.functional, name)(leaf, 2**24)))
        if can_call_aten():
            with quiet_patch(forward=True):
                texts.append(no_room(lambda leaf=leaf: getattr(F, name)(leaf, 2**24)))
    for text in texts:
        assert text.startswith(f"{name}: the call has no room")
        assert theirs in text


def test_memory_that_a_gradient_does_not_get(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise MemoryError("no room")

    x = torch.randn(1, 2, 4, 4, requires_grad=True)
    for module in (gradient_overrides, gradients, forward):
        monkeypatch.setattr(module, "compute", full)
    y = pt.functional.max_pool2d(x, 2).sum() + pt.functional.avg_pool2d(x, 3).sum()
    assert no_room(y.backward) == "no room"
    with quiet_patch(forward=False):
        y = F.avg_pool2d(x, 2, divisor_override=5).sum()
        assert no_room(y.backward) == "no room"


@pytest.mark.parametrize("patched", [False, True])
def test_unpools_with_more_elements_than_an_integer_counts(patched: bool) -> None:
    x, at = torch.zeros(1, 1, 2, 2, 2), torch.zeros(1, 1, 2, 2, 2, dtype=torch.int64)
    theirs = str(raised(F.max_unpool3d, x, at, 2**22))
    assert "overflow" in theirs
    module = F if patched else pt.functional
    with quiet_patch(forward=False) if patched else nullcontext():
        ours = raised(module.max_unpool3d, x, at, 2**22)
    assert isinstance(ours, RuntimeError)
    assert str(ours).startswith("max_unpool3d: the result has shape (1, 1, ")
    assert theirs in str(ours)
