"""The texts of our errors have PyTorch's text for the same call, which programs and tests look for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pooltide.torch as pt  # noqa: E402
from geometries import FUNCTIONS  # noqa: E402
from pools import quiet_patch  # noqa: E402
from pooltide.torch import aten_fallback  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402
from shares import fast_if, is_2d  # noqa: E402

F = torch.nn.functional
POOLS = [function.removesuffix("_backward") for function in FUNCTIONS]
GRADIENTS = list(aten_fallback.ATEN.items())


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
        if not aten_fallback._is_checked(function, [a for a in arguments if torch.is_tensor(a)]):
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
    assert texts[0] in texts[1]


def test_a_bad_index_is_not_handed_to_pytorch() -> None:
    """PyTorch would write outside the plane."""
    g, x, at = torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 4, 4), torch.full((1, 1, 2, 2), 99)
    with quiet_patch(forward=False), pytest.raises(IndexError, match="must be") as caught:
        torch.ops.aten.adaptive_max_pool2d_backward(g, x, at)
    assert "PyTorch says" not in str(caught.value)


def test_large_tensors_are_judged_on_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aten_fallback, "_LARGE", 3)
    monkeypatch.setattr(aten_fallback, "CPU_KERNELS", {})
    with (
        quiet_patch(forward=False),
        pytest.raises(RuntimeError, match="PyTorch says: Expected a tensor of dim"),
    ):
        torch.ops.aten.avg_pool2d_backward(
            torch.zeros(1, 3, 2, 2), torch.zeros(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, None
        )
