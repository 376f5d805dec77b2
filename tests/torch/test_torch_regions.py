"""Pools over regions of interest on tensors: values, gradients, followers, arguments, and torchvision's under `patch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pooltide  # noqa: E402
import pooltide.torch as pt  # noqa: E402
from pools import deterministic  # noqa: E402
from pooltide.torch.patching import region_overrides  # noqa: E402
from pooltide.torch.pools import regions  # noqa: E402

F = pt.functional
BOXES = torch.tensor(
    [[0, 0.5, 0.2, 3, 3.1], [1, 1, 1, 2, 2], [0, -2, 1, 9, 2.5], [0, 2, 2, 2, 2]], dtype=torch.float64
)
ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    "roi_align": (0.7, 2, True),
    "roi_pool": (0.7,),
    "ps_roi_align": (0.7, 2),
    "ps_roi_pool": (0.7,),
}
GRAD = torch.ones(4, 4, 2, 2, dtype=torch.float64)
each_pool = pytest.mark.parametrize("name", ATTRIBUTES)


def drawn(dtype: Any = torch.float64, requires_grad: bool = True) -> Any:
    torch.manual_seed(1)
    return torch.randn(2, 4, 5, 6, dtype=dtype, requires_grad=requires_grad)


@each_pool
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_values_and_gradients_are_those_of_arrays(name: str, dtype: Any) -> None:
    x, boxes = drawn(dtype), BOXES.float()
    pooled = getattr(F, name)(x, boxes, 2, *ATTRIBUTES[name])
    expected = getattr(pooltide, name)(x.detach().numpy(), boxes.numpy(), 2, *ATTRIBUTES[name])
    assert np.array_equal(pooled.detach().numpy(), expected)
    grad = torch.randn(pooled.shape).to(dtype)
    (gradient,) = torch.autograd.grad(pooled, x, grad)
    more: tuple[Any, ...] = (boxes.numpy(), *ATTRIBUTES[name])
    if name == "roi_pool":
        more = (more[0], F.roi_pool(x, boxes, 2, 0.7, return_indices=True)[1].numpy())
    theirs = getattr(pooltide, f"{name}_backward")(grad.numpy(), x.shape, *more)
    assert np.array_equal(gradient.numpy(), theirs)


@pytest.mark.parametrize("name", [name for name in ATTRIBUTES if name != "ps_roi_pool"])
def test_gradcheck(name: str) -> None:
    assert torch.autograd.gradcheck(lambda x: getattr(F, name)(x, BOXES, 2, *ATTRIBUTES[name]), drawn())


def test_gradcheck_of_ps_roi_pool_before_the_last_row_and_column() -> None:
    """Its forward leaves these out, and its gradient does not, as torchvision's."""
    inside = torch.tensor([[0, 0, 0, 3, 3], [1, 1, 0, 2, 4]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: F.ps_roi_pool(x, inside, 2), drawn())


def operator_calls(name: str) -> list[tuple[Any, tuple[Any, ...]]]:
    """The operators of a pool and of its gradient, with arguments."""
    arguments = drawn(), BOXES, [2, 2], *ATTRIBUTES[name]
    pooled = getattr(torch.ops.pooltide, name)(*arguments)
    indices, attributes = ((pooled[1],), ()) if name == "roi_pool" else ((), ATTRIBUTES[name])
    grad = torch.rand_like(pooled[0] if indices else pooled)
    rest = [2, 4, 5, 6], BOXES, *indices, *attributes, False
    operators = (getattr(torch.ops.pooltide, f"{name}{end}").default for end in ("", "_backward"))
    return list(zip(operators, (arguments, (grad, *rest)), strict=True))


@pytest.mark.slow
@each_pool
def test_operators_pass_pytorchs_checks(name: str) -> None:
    for operator, arguments in operator_calls(name):
        checks = torch.library.opcheck(operator, arguments)
        assert set(checks.values()) == {"SUCCESS"}, checks


@each_pool
@pytest.mark.parametrize("mapped", ["values", "boxes", "both"])
def test_vmap_has_the_bits_of_one_call_after_another(name: str, mapped: str) -> None:
    for operator, (values, *arguments) in operator_calls(name):
        at = next(i for i, argument in enumerate(arguments) if argument is BOXES)
        dims: list[Any] = [1 if mapped != "boxes" else None, *[None] * len(arguments)]
        many = torch.stack([values.detach(), 2 - values.detach(), values.detach() ** 2], 1)
        if mapped != "values":
            dims[1 + at] = 0
            arguments[at] = torch.stack([BOXES, BOXES.flip(0), BOXES + torch.tensor([0, 1, 0, 1, 0])])
        given = [many if mapped != "boxes" else values.detach(), *arguments]
        results = torch.func.vmap(operator, tuple(dims))(*given)
        for n in range(3):
            one = [g if d is None else g.select(d, n) for g, d in zip(given, dims, strict=True)]
            expected = operator(*one)
            pairs = (
                zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
            )
            assert all(torch.equal(result[n], each) for result, each in pairs)


def test_vmap_finds_a_bad_image_and_bad_channels_of_one_call() -> None:
    x, boxes = torch.ones(2, 1, 4, 5, 6), torch.zeros(2, 3, 5)
    boxes[1, 2, 0] = -1  # of the second call: among the images of all, it would be the first call's
    with pytest.raises(IndexError, match="roi_align: "):
        torch.func.vmap(lambda x, boxes: F.roi_align(x, boxes, 2))(x, boxes)
    with pytest.raises(ValueError, match="ps_roi_pool: "):  # two times 2 channels would do for 4 bins
        torch.func.vmap(lambda x: F.ps_roi_pool(x, BOXES.float()[:1], 2))(x[:, :, :2])


@each_pool
def test_a_second_derivative_raises(name: str) -> None:
    x, boxes = drawn(), BOXES
    pooled = getattr(F, name)(x, boxes, 2, *ATTRIBUTES[name])
    (gradient,) = torch.autograd.grad((pooled**2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


@each_pool
def test_forward_mode_has_the_derivative_of_a_pool_and_of_its_gradient(name: str) -> None:
    """A pool is linear in its input while its maxima stay where they are; so is its gradient."""
    x, tangent = drawn(requires_grad=False), drawn(requires_grad=False).flip(0)

    def pool(x: Any) -> Any:
        return getattr(F, name)(x, BOXES, 2, *ATTRIBUTES[name])

    def gradient(x: Any) -> Any:
        return torch.func.grad(lambda x: (pool(x) ** 2).sum())(x)

    for function in pool, gradient:
        step = 1e-6
        expected = (function(x + step * tangent) - function(x - step * tangent)) / (2 * step)
        _, got = torch.func.jvp(function, (x,), (tangent,))
        assert expected.abs().max() > 0.1
        assert torch.allclose(got, expected, atol=1e-7)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, tangent)
            assert torch.equal(torch.autograd.forward_ad.unpack_dual(function(dual)).tangent, got)
    row = torch.func.jvp(gradient, (x,), (torch.ones_like(x),))[1]
    assert torch.allclose(torch.func.hessian(lambda x: (pool(x) ** 2).sum())(x).sum((4, 5, 6, 7)), row)


def test_forward_mode_under_a_compiler_is_not_zero() -> None:
    x = drawn(requires_grad=False)
    compiled = torch.compile(
        lambda x: torch.func.jvp(lambda x: F.roi_align(x, BOXES, 2), (x,), (x,)), backend="eager"
    )
    assert all(torch.equal(result, F.roi_align(x, BOXES, 2)) for result in compiled(x))


def test_the_tangent_of_boxes_counts_for_nothing() -> None:
    x = drawn(requires_grad=False)
    _, tangent = torch.func.jvp(lambda boxes: F.roi_align(x, boxes, 2), (BOXES,), (BOXES,))
    assert not tangent.any()


@each_pool
def test_gradients_by_torch_func_have_the_bits_of_autograd(name: str) -> None:
    def loss(x: Any) -> Any:
        return (getattr(F, name)(x, BOXES, 2, *ATTRIBUTES[name]) ** 2).sum()

    xs = torch.stack([drawn(requires_grad=False), drawn(requires_grad=False) ** 2])
    expected = [torch.autograd.functional.vjp(loss, x)[1] for x in xs]
    assert torch.equal(torch.func.grad(loss)(xs[0]), expected[0])
    assert torch.equal(torch.func.vmap(torch.func.grad(loss))(xs), torch.stack(expected))


def test_boxes_get_no_gradient_and_may_be_a_list() -> None:
    x, boxes = drawn(torch.float32), BOXES.float().requires_grad_()
    assert torch.autograd.grad(F.roi_align(x, boxes, 2).sum(), boxes, allow_unused=True) == (None,)
    parts = [BOXES[BOXES[:, 0] == image, 1:].float() for image in range(2)]
    joined = torch.cat([BOXES[BOXES[:, 0] == image] for image in range(2)]).float()
    assert torch.equal(F.roi_align(x, parts, 2), F.roi_align(x, joined, 2))
    assert F.roi_align(x, [], 2).shape == (0, 4, 2, 2)
    nothing = F.roi_align(x, torch.zeros(0, 5), 2).sum()
    assert not torch.autograd.grad(nothing, x)[0].any()


@each_pool
def test_channels_last_stays(name: str) -> None:
    x = drawn(torch.float32, False)
    wide = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    pool: Callable[..., Any] = getattr(F, name)
    pooled, expected = (pool(each, BOXES.float(), 2, *ATTRIBUTES[name]) for each in (wide, x))
    assert torch.equal(pooled, expected)
    pooled.sum().backward()
    assert wide.grad.stride() == wide.stride()


def test_half_types_under_autocast_have_the_bits_of_float32_rounded_once() -> None:
    x = drawn(torch.bfloat16, False)
    with torch.autocast("cpu"):
        pooled = F.roi_align(x, BOXES.float(), 2)
    assert torch.equal(pooled, F.roi_align(x.float(), BOXES.float(), 2).bfloat16())


def backward(out: Any) -> Any:
    return pt.roi_align_backward(GRAD, (2, 4, 5, 6), BOXES, out=out)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: F.roi_align(3, BOXES, 2), TypeError, "roi_align: input is an int"),
        (lambda x: F.roi_align(x, BOXES[:, :4], 2), ValueError, "boxes has shape (4, 4)"),
        (lambda x: F.roi_align(x, [BOXES], 2), ValueError, "boxes[0] has shape (4, 5)"),
        (lambda x: F.roi_align(x, [BOXES[:, 1:]] * 3, 2), ValueError, "boxes has 3 tensors"),
        (lambda x: F.roi_align(x, [3], 2), TypeError, "boxes[0] is 3"),
        (lambda x: F.roi_align(x, [BOXES[:, 1:].int()], 2), TypeError, "boxes[0] has dtype int32"),
        (
            lambda x: F.roi_align(x, [BOXES[:, 1:], BOXES[:, 1:].float()], 2),
            TypeError,
            "boxes[1] has dtype float32; it must be float64",
        ),
        (
            lambda x: F.roi_align(x, BOXES.to("meta"), 2),
            ValueError,
            "boxes is on meta; it must be on cpu, as input is",
        ),
        (lambda x: backward(out=torch.zeros(5, 2, 4, 5, 6).double()), ValueError, "out has rank 5"),
        (lambda x: backward(out=torch.zeros(3, 4, 5, 6).double()), ValueError, "out has shape (3, 4, 5, 6)"),
        (lambda x: backward(out=torch.zeros(2, 4, 5, 6).int()), TypeError, "out has dtype int32"),
        (lambda x: backward(out=np.zeros((2, 4, 5, 6))), TypeError, "out is a ndarray"),
        (lambda x: backward(out=drawn()), ValueError, "out requires a gradient"),
        (lambda x: pt.roi_pool_backward(GRAD, x.shape, BOXES, None), TypeError, "indices is None"),
        (lambda x: F.roi_align(x, BOXES.half(), 2), TypeError, "boxes has dtype float16"),
        (lambda x: F.roi_align(x, BOXES, 0), ValueError, "output_size has values (0, 0)"),
        (lambda x: F.roi_align(x, BOXES, 2, "a"), TypeError, "spatial_scale is 'a'"),
        (lambda x: F.ps_roi_align(x, BOXES, 3), ValueError, "input has 4 channels"),
        (lambda x: F.roi_pool(x, BOXES + 1, 2), IndexError, "boxes[1, 0], an image, is 2"),
        (
            lambda x: pt.roi_pool_backward(
                torch.zeros(4, 4, 2, 2).double(), x, BOXES, torch.full((4, 4, 2, 2), 30)
            ),
            IndexError,
            "indices[0, 0, 0, 0] is 30",
        ),
        (
            lambda x: pt.roi_align_backward(torch.zeros(4, 4, 2, 2), x.shape, BOXES),
            TypeError,
            "boxes has dtype",
        ),
    ],
)
def test_bad_arguments_are_named(call: Callable[[Any], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call(drawn())
    assert text in str(caught.value)
    assert isinstance(caught.value, RuntimeError)


@pytest.fixture
def vision() -> Any:
    torchvision = pytest.importorskip(
        "torchvision", reason="torchvision is not installed: its patched pools are NOT tested"
    )
    yield torchvision.ops
    pt.unpatch()


def _torchvisions(ops: Any, name: str, x: Any) -> list[Any]:
    pooled = getattr(ops, name)(x, BOXES.to(x.dtype), 2, *ATTRIBUTES[name])
    weights = torch.arange(pooled.numel(), dtype=x.dtype).view(pooled.shape)
    return [pooled.detach(), *torch.autograd.grad((pooled * weights).sum(), x)]


@each_pool
def test_a_patch_replaces_torchvisions_pool_and_its_gradient(
    vision: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, calls, run = drawn(torch.float32), [0], regions._run

    def counted(*arguments: Any) -> None:
        calls[0] += 1
        run(*arguments)

    monkeypatch.setattr(regions, "_run", counted)
    before = _torchvisions(vision, name, x)
    assert calls == [0]
    with pt.patch(), deterministic():
        patched = _torchvisions(vision, name, x)
    assert calls == [2]
    after = _torchvisions(vision, name, x)
    assert calls == [2]
    assert all(
        torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(before, patched, after, strict=True)
    )


def test_torchvisions_operators_have_the_arguments_that_a_patch_expects(vision: Any) -> None:
    for name, arguments in region_overrides.arguments().items():
        schema = getattr(torch.ops.torchvision, name).default._schema
        assert tuple(argument.name for argument in schema.arguments) == arguments


def test_a_patch_takes_the_place_of_torchvisions_python_program(vision: Any) -> None:
    """torchvision calls it on CUDA under deterministic algorithms, and not on the CPU."""
    import sys

    with pt.patch():
        program = sys.modules["torchvision.ops.roi_align"]._roi_align  # type: ignore[attr-defined]
        x = drawn(torch.float32, False)
        ours = program(x, BOXES.float(), 0.7, 2, 2, 2, True)
    assert torch.equal(ours, vision.roi_align(x, BOXES.float(), 2, 0.7, 2, True))
