"""Patches in odd moments, and calls that PyTorch's own kernels would not survive."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pools import quiet_patch  # noqa: E402
from pooltide.torch import functional  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402

COLLECTED = """
import faulthandler, gc, pooltide.torch as pt
faulthandler.dump_traceback_later(60, exit=True)
class Trainer:
    def __init__(self):
        self.handle, self.me = pt.patch(), self  # a cycle
    def __del__(self):
        self.handle.remove()
Trainer()
gc.set_threshold(1)
pt.patch(forward=FORWARD).remove()
assert not pt.is_patched()
print("done")
"""


def test_the_garbage_collector_may_remove_a_patch_while_another_is_made() -> None:
    program = COLLECTED.replace("FORWARD", str(can_call_aten()))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.skipif(not can_call_aten(), reason="this release has no patch(forward=True)")
@pytest.mark.parametrize(
    "name", ["AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool3d"]
)
def test_one_size_for_several_axes_is_refused_as_by_pytorch(name: str) -> None:
    pool, x = getattr(torch.nn, name)((2,)), torch.randn(1, 2, *[5] * int(name[-2]))
    with pytest.raises(RuntimeError) as plain:
        pool(x)
    with quiet_patch(forward=True), pytest.raises(RuntimeError) as patched:
        pool(x)
    assert str(plain.value).split(";")[0] in str(patched.value)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint16])
def test_a_bad_out_reaches_no_kernel_of_pytorch(dtype: Any) -> None:
    """PyTorch's kernel of 3-D adaptive maxima crashes on expanded tensors, which a check once gave it."""
    g, x = torch.ones(2, 2, 4, 5, 4), torch.ones(2, 2, 3, 5, 5)
    indices = torch.zeros(2, 2, 4, 5, 4, dtype=torch.int64)
    with quiet_patch(False), pytest.raises(RuntimeError, match="adaptive_max_pool3d_backward: "):
        torch.ops.aten.adaptive_max_pool3d_backward.grad_input(
            g, x, indices, grad_input=torch.zeros(2, 2, 3, 5, 5, dtype=dtype)
        )


def test_an_overlapping_out_of_a_fractional_pool_is_refused() -> None:
    base = torch.zeros(200)
    out = base[:36].view(1, 1, 6, 6).expand(1, 2, 6, 6)
    indices = torch.arange(9).view(1, 1, 3, 3).expand(1, 2, 3, 3).contiguous()
    with quiet_patch(False), pytest.raises(RuntimeError):
        torch.ops.aten.fractional_max_pool2d_backward.grad_input(
            torch.ones(1, 2, 3, 3), torch.randn(1, 2, 6, 6), [2, 2], [3, 3], indices, grad_input=out
        )
    assert not base.any()


def test_planes_without_channels_have_an_empty_gradient() -> None:
    g, x = torch.ones(0, 6, 5), torch.ones(0, 3, 10)
    indices = torch.zeros(0, 6, 5, dtype=torch.int64)
    must = torch.ops.aten.adaptive_max_pool2d_backward(g, x, indices)
    with quiet_patch(False):
        assert torch.ops.aten.adaptive_max_pool2d_backward(g, x, indices).shape == must.shape


def test_a_huge_window_is_refused_at_once() -> None:
    with pytest.raises(RuntimeError):
        functional.max_pool1d(torch.ones(2, 1, 14), 2**62, 4, 2, ceil_mode=True)


@pytest.mark.parametrize("name", ["avg_pool2d", "avg_pool3d", "max_pool2d", "max_pool3d"])
def test_strides_and_dilations_over_32_bits_raise_as_in_pytorch(name: str) -> None:
    x = torch.rand(1, 2, *(4,) * int(name[-2]))
    bad: list[dict[str, Any]] = [{"stride": 2**31}, {"stride": (1,) * (x.dim() - 3) + (2**40,)}]
    bad += [{"kernel_size": 1, "dilation": 2**31}] if name.startswith("max") else []
    for more in bad:
        arguments = {"kernel_size": 2} | more
        found = []
        for module, patched in ((F, False), (F, can_call_aten()), (functional, False)):
            with quiet_patch(True) if patched else nullcontext():
                try:
                    found.append(getattr(module, name)(x, **arguments).tolist())
                except RuntimeError as error:
                    found.append(str(error))
        assert found[0] == found[1] == found[2]
        # Averages of planes take such a stride in PyTorch 2.6.
        assert isinstance(found[0], str) or (name == "avg_pool2d" and not can_call_aten())
    must = getattr(F, name)(x, 2, 2**31 - 1)
    assert torch.equal(getattr(functional, name)(x, 2, 2**31 - 1), must)


def test_lazily_negated_tensors_have_our_nodes() -> None:
    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    y = functional.adaptive_avg_pool2d(torch._neg_view(x), 3)
    assert "Average" in y.grad_fn.name()
    assert torch.equal(y, F.adaptive_avg_pool2d(-x, 3))


@pytest.mark.parametrize("size", [((1, 2), (3, 4)), (object(), 2)])
def test_odd_sizes_under_vmap_are_refused(size: Any) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        torch.vmap(lambda x: functional.adaptive_avg_pool2d(x, size))(torch.ones(2, 1, 4, 4))


def test_a_scripted_model_is_afterwards_as_it_was() -> None:
    model = torch.jit.script(torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pt.status(model, torch.randn(2, 3, 4, 4))
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("size", [2, 3])
def test_an_expanded_grad_input_is_refused_with_pytorchs_text_if_it_has_one(size: int) -> None:
    """PyTorch's 3-D kernels write outside such a tensor, so only the 2-D ones are asked."""
    x = torch.ones(1, 1, *[4] * size)
    out = torch.zeros(1).expand(x.shape)
    backward = getattr(torch.ops.aten, f"avg_pool{size}d_backward").grad_input
    arguments = (torch.ones(1, 1, *[2] * size), x, [2] * size, [2] * size, [0] * size, False, True, None)
    with quiet_patch(False), pytest.raises(RuntimeError, match="share memory") as patched:
        backward(*arguments, grad_input=out)
    if size == 2:
        with pytest.raises(RuntimeError) as plain:
            backward(*arguments, grad_input=out)
        assert str(plain.value).split("\n")[0] in str(patched.value)
    else:
        assert "PyTorch says" not in str(patched.value)
