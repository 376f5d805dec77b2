"""Max unpooling and fractional max pools in PyTorch: our functions, and PyTorch's own under patch()."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide  # noqa: E402
import pooltide.torch as pt  # noqa: E402
from pools import deterministic  # noqa: E402
from pooltide.torch.patching import index_overrides  # noqa: E402
from pooltide.torch.pools import unpool_kernels  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402
from shares import fast_first  # noqa: E402

each_rank = pytest.mark.parametrize("axes", [1, 2, 3])
SIZES = (9, 7, 8)


def pooled(axes: int, dtype: Any = torch.float32, batch: tuple[int, ...] = (2, 3)) -> tuple[Any, Any, Any]:
    """Values, their indices, and the plane that was pooled."""
    x = torch.randn(*batch, *SIZES[:axes], dtype=dtype, generator=torch.Generator().manual_seed(axes))
    values, indices = getattr(F, f"max_pool{axes}d")(x, 2, 2, return_indices=True)
    return values, indices, SIZES[:axes]


def both(axes: int) -> tuple[Any, Any, Any]:
    name = f"max_unpool{axes}d"
    return getattr(pt.functional, name), getattr(F, name), getattr(pt, f"{name}_backward")


@each_rank
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("batch", [(2, 3), (3,)])
def test_values_and_gradients_are_pytorch_s(axes: int, dtype: Any, batch: Any) -> None:
    ours, theirs, backward = both(axes)
    values, indices, plane = pooled(axes, dtype, batch)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x, y = values.clone().requires_grad_(), values.to(wide).requires_grad_()
    want, got = theirs(y, indices, 2, 2, 0, plane), ours(x, indices, 2, 2, 0, plane)
    assert got.dtype == dtype
    assert torch.equal(got.to(wide), want)
    g = torch.randn(got.shape).to(dtype)
    want.backward(g.to(wide))
    got.backward(g)
    assert torch.equal(x.grad.to(wide), y.grad)
    for index in (indices, indices.int()):
        assert torch.equal(backward(g, values, index, 2, 2, 0, plane), x.grad)
        assert torch.equal(backward(g, tuple(values.shape), index, 2, 2, 0, plane), x.grad)
    out = torch.empty_like(values)
    assert backward(g, values, indices, 2, 2, 0, plane, out=out) is out
    assert torch.equal(out, x.grad)


@each_rank
@pytest.mark.parametrize("gather", [False, True])
def test_pytorch_s_operators_give_the_bits_of_the_cpu_kernel(axes: int, gather: bool) -> None:
    """GPUs run these operators. Equal indices and indices outside the plane are among them."""
    plane, small = SIZES[:axes], (3, 2, 4)[:axes]
    random = np.random.default_rng(axes)
    cells = int(np.prod(plane))
    indices = torch.from_numpy(random.integers(0, 9, (2, 3, *small)))
    source = torch.from_numpy(
        random.standard_normal((2, 3, *(plane if gather else small))).astype(np.float32)
    )
    source.view(-1)[::3] = -0.0
    want = unpool_kernels.move("unpool", source, indices, plane, gather, True)
    spoiled = indices.clone()
    spoiled[0, 0].fill_(-5)
    spoiled[1, 1].fill_(cells)
    for given in (indices, spoiled):
        flat = given.flatten(2)
        safe = torch.where((flat >= 0) & (flat < cells), flat, cells)
        with deterministic():
            got = unpool_kernels.move_by_operators(source, safe, given.shape, plane, gather)
        bad = (given != indices).flatten(2).any(-1)
        assert torch.equal(got[~bad].view(torch.int32), want[~bad].view(torch.int32))
        assert not got[bad].any()


def test_channels_last_stays_channels_last() -> None:
    values, indices, plane = pooled(2)
    last = values.to(memory_format=torch.channels_last)
    want = F.max_unpool2d(values, indices, 2, 2, 0, plane)
    got = pt.functional.max_unpool2d(last, indices, 2, 2, 0, plane)
    assert torch.equal(got, want)
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("axes", fast_first([2, 1, 3]))
def test_second_derivatives_vmap_and_forward_mode(axes: int) -> None:
    ours, _, _ = both(axes)
    values, indices, plane = pooled(axes, torch.float64, (1, 2))
    x = values.clone().requires_grad_()

    def unpool(x: Any) -> Any:
        return ours(x, indices, 2, 2, 0, plane)

    assert torch.autograd.gradcheck(unpool, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(unpool, x)
    several = torch.stack([values, 2 * values])
    assert torch.equal(torch.vmap(unpool)(several), torch.stack([unpool(v) for v in several]))
    _, tangent = torch.func.jvp(unpool, (values,), (torch.ones_like(values),))
    assert torch.equal(tangent, unpool(torch.ones_like(values)))


def test_bad_arguments_raise_what_code_for_pytorch_catches() -> None:
    values, indices, plane = pooled(2)
    unpool = pt.functional.max_unpool2d
    with pytest.raises(RuntimeError, match=r"max_unpool2d: indices\[0, 0, 0, 0\] is 63; it must be 0 to 62"):
        unpool(values, torch.full_like(indices, 63), 2, 2, 0, plane)
    with pytest.raises(IndexError, match="max_unpool2d_backward: indices"):
        pt.max_unpool2d_backward(torch.ones(2, 3, *plane), values, indices - 100, 2, 2, 0, plane)
    with pytest.raises(ValueError, match=r"indices has shape \(1, 3, 4, 3\); it must be \(2, 3, 4, 3\)"):
        unpool(values, indices[:1], 2)
    with pytest.raises(TypeError, match="input is an int; it must be a tensor"):
        unpool(7, indices, 2)
    with pytest.raises(TypeError, match="indices has dtype int16; it must be int32 or int64"):
        unpool(values, indices.short(), 2)


# patch()


@pytest.fixture
def reached(monkeypatch: Any) -> list[str]:
    """The names of the unpools that reach our kernel."""
    calls: list[str] = []
    kernel = index_overrides.move

    def watched(name: str, *rest: Any, **more: Any) -> Any:
        calls.append(name)
        return kernel(name, *rest, **more)

    monkeypatch.setattr(index_overrides, "move", watched)
    return calls


@each_rank
def test_patched_unpools_do_not_raise_under_deterministic_algorithms(axes: int, reached: list[str]) -> None:
    _, theirs, _ = both(axes)
    for batch in ((2, 3), (3,)):
        values, indices, plane = pooled(axes, batch=batch)
        want = theirs(values, indices, 2, 2, 0, plane)
        with deterministic(), pytest.raises(RuntimeError, match="does not have a deterministic"):
            theirs(values, indices, 2, 2, 0, plane)
        x = values.clone().requires_grad_()
        with deterministic(), pt.patch():
            got = theirs(x, indices, 2, 2, 0, plane)
            got.backward(torch.ones_like(got))
        assert torch.equal(got, want)
        assert torch.equal(x.grad, torch.ones_like(x))
        assert reached == ["max_unpool1d, or max_unpool2d of width 1" if axes == 1 else f"max_unpool{axes}d"]
        reached.clear()
    assert not pt.is_patched()
    assert torch.equal(theirs(values, indices, 2, 2, 0, plane), want)
    assert reached == []


@pytest.mark.parametrize("axes", [2, 3])
def test_patched_unpools_have_pytorch_s_strides_dtypes_and_out_form(axes: int, reached: list[str]) -> None:
    name = f"max_unpool{axes}d"
    values, indices, plane = pooled(axes)
    more = ([2] * 3, [0] * 3) if axes == 3 else ()
    last = torch.channels_last if axes == 2 else torch.channels_last_3d
    op = getattr(torch.ops.aten, name)
    for x in (values, values.to(memory_format=last), values.transpose(0, 1).contiguous().transpose(0, 1)):
        for dtype in (torch.float32, torch.float64):
            given = x.to(dtype)
            want = op(given, indices, plane, *more)
            out, theirs = torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype)
            op.out(given, indices, plane, *more, out=theirs)
            with pt.patch():
                got = op(given, indices, plane, *more)
                assert op.out(given, indices, plane, *more, out=out) is out
            assert torch.equal(got, want)
            assert torch.equal(out, want)
            assert got.stride() == want.stride()
            assert out.stride() == theirs.stride()
    assert set(reached) == {name}


@pytest.mark.parametrize("axes", [2, 3])
def test_patched_unpools_raise_pytorch_s_errors(axes: int) -> None:
    name, (values, indices, plane) = f"max_unpool{axes}d", pooled(axes)
    op = getattr(torch.ops.aten, name)
    more = ([2] * 3, [0] * 3) if axes == 3 else ()
    for bad in (
        (values, indices.int(), plane),
        (values, indices[..., :1], plane),
        (values[0, 0, 0], indices[0, 0, 0], plane),
        (values, indices, plane[:1]),
        (values, indices.clone().fill_(10**6), plane),
    ):
        with pytest.raises(RuntimeError):
            op(*bad, *more)
        with pt.patch(), pytest.raises(RuntimeError):
            op(*bad, *more)


X2, I2 = torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4, dtype=torch.int64)
X3, I3 = X2[..., None], I2[..., None]
BAD_UNPOOLS = {
    "indices has dtype torch.int32; it must be torch.int64": ("max_unpool2d", X2, I2.int(), [6, 8]),
    "output_size has 1 values; it must have 2": ("max_unpool2d", X2, I2, [6]),
    "output_size is (-6, 8); it must not be negative": ("max_unpool2d", X2, I2, [-6, 8]),
    "input has 2 dimensions; it must have 3 or 4": ("max_unpool2d", X2[0, 0], I2[0, 0], [6, 8]),
    "indices has shape (1, 2, 3, 3); it must have the shape of input, (1, 2, 3, 4)": (
        "max_unpool2d", X2, I2[..., :3], [6, 8],
    ),
    "input has shape (1, 0, 3, 4); only its first dimension may be 0": (
        "max_unpool2d", X2[:, :0], I2[:, :0], [6, 8],
    ),
    "stride has 2 values; it must have 3": ("max_unpool3d", X3, I3, [6, 8, 2], [2, 2], [0, 0, 0]),
    "padding has 2 values; it must have 3": ("max_unpool3d", X3, I3, [6, 8, 2], [2, 2, 2], [0, 0]),
    "stride is (2, 0, 2); it must be positive": ("max_unpool3d", X3, I3, [6, 8, 2], [2, 0, 2], [0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("says", BAD_UNPOOLS)
def test_bad_arguments_are_named_under_deterministic_algorithms_too(says: str) -> None:
    """PyTorch names the missing determinism first. It refuses the same arguments by itself, too."""
    name, *arguments = BAD_UNPOOLS[says]
    function = getattr(torch.ops.aten, str(name))
    with pytest.raises(RuntimeError) as theirs:
        function(*arguments)
    assert "deterministic" not in str(theirs.value)
    with pt.patch():
        own = str(theirs.value).split("\n")[0] if can_call_aten() else f"{name}: {says}."
        with pytest.raises(RuntimeError, match=re.escape(own)):
            function(*arguments)  # PyTorch's error, if there is a way back to its kernel
        with deterministic(), pytest.raises(RuntimeError) as ours:
            function(*arguments)
    assert str(ours.value) == f"{name}: {says}."


@pytest.mark.parametrize("axes", [2, 3])
def test_patched_fractional_gradients_are_pytorch_s(axes: int, monkeypatch: Any) -> None:
    from pooltide.torch.patching import gradient_overrides

    calls: list[str] = []
    computed = gradient_overrides.computed
    monkeypatch.setattr(
        gradient_overrides, "computed", lambda name, *rest: calls.append(name) or computed(name, *rest)
    )
    pool = getattr(F, f"fractional_max_pool{axes}d")
    name = f"fractional_max_pool{axes}d_backward"
    for batch, dtype in (((2, 3), torch.float32), ((3,), torch.float32), ((2, 3), torch.float64)):
        data = torch.randn(*batch, *SIZES[:axes], dtype=dtype)
        x = data.clone().requires_grad_()
        samples = torch.rand(2 if len(batch) == 2 else 1, 3, axes, dtype=dtype)
        y = pool(x, 3, output_size=(4, 3, 5)[:axes], _random_samples=samples)
        g = torch.randn_like(y)
        (want,) = torch.autograd.grad(y, x, g, retain_graph=True)
        with deterministic(), pt.patch():
            (got,) = torch.autograd.grad(y, x, g)
        assert torch.equal(got, want)
        assert got.stride() == want.stride()
        assert calls == [f"adaptive_max_pool{axes}d_backward"]
        calls.clear()
        _, indices = pool(data, 3, output_size=(4, 3, 5)[:axes], _random_samples=samples, return_indices=True)
        out = torch.empty(0, dtype=dtype)
        sizes = ([3] * axes, list(y.shape[-axes:]))
        with pt.patch():
            getattr(torch.ops.aten, name).grad_input(g, data, *sizes, indices, grad_input=out)
        assert torch.equal(out, want)
        calls.clear()


def test_numpy_and_torch_agree() -> None:
    values, indices, plane = pooled(2)
    got = pt.functional.max_unpool2d(values, indices, 2, 2, 0, plane).numpy()
    want = pooltide.max_unpool2d(values.numpy(), indices.numpy(), 2, 2, 0, plane)
    np.testing.assert_array_equal(got, want)


def test_compiled_code_takes_pytorch_s_unpool() -> None:
    values, indices, plane = pooled(2)
    step = torch.compile(lambda v: pt.functional.max_unpool2d(v, indices, 2, 2, 0, plane), backend="eager")
    assert torch.equal(step(values), F.max_unpool2d(values, indices, 2, 2, 0, plane))


@pytest.mark.parametrize("axes", [2, 3])
def test_patched_unpools_of_an_empty_batch_do_not_raise_under_deterministic_algorithms(axes: int) -> None:
    empty = torch.zeros(0, 3, *(4,) * axes)
    with pt.patch(), deterministic():
        found = getattr(F, f"max_unpool{axes}d")(empty, empty.long(), 2)
    assert found.shape == (0, 3, *(8,) * axes)


@each_rank
def test_meta_tensors_have_shapes_only(axes: int) -> None:
    values = torch.zeros(1, 3, *(4,) * axes, device="meta")
    found = getattr(pt.functional, f"max_unpool{axes}d")(values, values.long(), 2)
    assert (found.shape, found.device.type) == ((1, 3, *(8,) * axes), "meta")
