"""status(): what pooltide does in this process, and what in a training step is not deterministic."""

from __future__ import annotations

import random
import re
import runpy
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from paths import DOCS

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import pooltide.torch as pt  # noqa: E402
from pools import deterministic, quiet_patch  # noqa: E402
from pooltide.kernels.cuda.runtime import background, compiler  # noqa: E402
from pooltide.torch import aten, training_step  # noqa: E402


class Call(nn.Module):
    """A function of the input times a weight."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(inputs[0] * self.weight, *inputs[1:])


def step_of(function: Any, *inputs: Any) -> Any:
    found = pt.status(Call(function), *inputs).step
    assert found is not None
    return found


def unpool(x: Any) -> Any:
    return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)


IMAGE, VOLUME = torch.ones(1, 1, 4, 4), torch.ones(1, 2, 4, 4, 4)


def test_status_without_a_model(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setenv("POOLTIDE_CACHE", str(tmp_path))
    (tmp_path / "a.cubin").write_bytes(bytes(1_500_000))
    (tmp_path / "b.txt").write_bytes(bytes(9_000_000))  # not ours
    found = pt.status()
    assert (found.pytorch, found.patches, found.forward_patches, found.step) == (
        torch.__version__,
        0,
        0,
        None,
    )
    assert (found.kernel_cache, found.kernel_cache_bytes) == (tmp_path, 1_500_000)
    assert (found.nvrtc is None) == (found.nvrtc_fault is not None)
    for words in (torch.__version__, "1.5 MB", "patched       nothing", found.instruction_set):
        assert words in str(found)
    with quiet_patch(forward=False), quiet_patch(forward=False):
        assert "patched       gradients, 2 patches" in str(pt.status())


def test_kernels_that_are_compiled_in_the_background_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_kernels", {("a kernel", 0): None, ("another", 0): None})
    monkeypatch.setattr(background, "unfinished", lambda: ["a job"])
    found = pt.status()
    assert (found.kernels_ready, found.kernels_compiling) == (2, 1)
    assert "GPU kernels   2 ready, 1 being compiled" in str(found)


def test_threads_are_those_that_a_call_may_use() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert pt.status().threads == 1
    finally:
        torch.set_num_threads(before)


def test_forward_patches_are_counted() -> None:
    if not pt.releases.can_call_aten():
        pytest.skip("this PyTorch has no patch(forward=True)")
    with quiet_patch(forward=True), quiet_patch(forward=False):
        found = pt.status()
    assert (found.patches, found.forward_patches) == (2, 1)
    assert "gradients and forwards, 2 patches" in str(found)


def test_nvrtc_that_is_missing_has_a_reason(monkeypatch: Any) -> None:
    def missing() -> Any:
        raise pt.status.__globals__["NoCompiler"]("it is not here")

    monkeypatch.setattr("pooltide.kernels.cuda.runtime.nvrtc.library", missing)
    assert pt.status().nvrtc_fault == "it is not here"
    assert "not found: it is not here" in str(pt.status())


def test_fallbacks_are_counted(monkeypatch: Any) -> None:
    if not pt.releases.can_call_aten():
        pytest.skip("this PyTorch can't call a patched kernel")
    monkeypatch.setattr(aten, "_warned", Counter())
    g, x = torch.full((1, 2, 2, 2), 8), torch.ones(1, 2, 4, 4, dtype=torch.int64)
    with quiet_patch(forward=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            torch.ops.aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None)
    ((text, count),) = pt.status().fallbacks.items()
    assert (count, text.startswith("avg_pool2d_backward: ")) == (3, True)
    assert f"3 × {text}" in str(pt.status())


def test_an_unpool_raises_here_and_patch_cures_it() -> None:
    found = step_of(unpool, IMAGE)
    assert found.raises == ("max_unpooling2d_forward_out",)
    assert found.remaining == ()
    assert "max_unpooling2d_forward_out (patch() replaces it)" in str(found)
    with quiet_patch(forward=False):
        cured = step_of(unpool, IMAGE)
    assert (cured.raises, cured.raises_on_cuda) == ((), ())
    assert "nothing raises" in str(cured)


def test_what_is_reported_is_what_raises() -> None:
    x = torch.ones(1, 1, 4, 4, requires_grad=True)
    with deterministic(), pytest.raises(RuntimeError, match="max_unpooling2d_forward_out"):
        unpool(x)
    assert not step_of(lambda x: F.max_pool2d(x, 2), IMAGE).raises


ON_CUDA = {
    "AdaptiveAvgPool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), VOLUME),
    "AvgPool3d": (lambda x: F.avg_pool3d(x, 2), VOLUME),
    "AdaptiveMaxPool2d": (lambda x: F.adaptive_max_pool2d(x, 2), IMAGE),
    "FractionalMaxPool2d": (lambda x: F.fractional_max_pool2d(x, 2, 2), IMAGE),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IMAGE),
    "ReflectionPad1d": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), IMAGE),
    "grid_sample": (lambda x: F.grid_sample(x, torch.zeros(1, 2, 2, 2), align_corners=False), IMAGE),
    "cumsum": (lambda x: x.cumsum(0), IMAGE),
    "median": (lambda x: x.median(0), IMAGE),
    "NLLLoss": (
        lambda x: F.cross_entropy(x, torch.zeros(1, 4, 4, dtype=torch.int64)),
        torch.ones(1, 3, 4, 4),
    ),
    "Tensor.scatter_reduce": (
        lambda x: x.flatten().scatter_reduce(0, torch.zeros(16, dtype=torch.int64), x.flatten(), "prod"),
        IMAGE,
    ),
    "bincount": (lambda x: x * torch.bincount(torch.tensor([0, 1]), torch.ones(2)).sum(), IMAGE),
    "EmbeddingBag": (lambda x: F.embedding_bag(torch.tensor([[0, 1]]), x[0, 0], mode="max"), IMAGE),
}


@pytest.mark.parametrize("documented", ON_CUDA)
def test_what_raises_on_cuda_is_said_on_the_cpu(documented: str) -> None:
    function, x = ON_CUDA[documented]
    found = step_of(function, x)
    assert [text.startswith(documented) for text in found.raises_on_cuda] == [True]
    pool = "Pool" in documented
    assert (len(found.cured_by_patch), len(found.remaining)) == (pool, not pool)
    if pool:
        with quiet_patch(forward=False):
            assert step_of(function, x).raises_on_cuda == ()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.arange(4).cumsum(0),  # integers
        lambda x: x.flatten().scatter_reduce(0, torch.zeros(16, dtype=torch.int64), x.flatten(), "sum"),
        lambda x: F.embedding_bag(torch.tensor([[0, 1]]), x[0, 0], mode="sum"),
        lambda x: F.embedding_bag(torch.tensor([[0, 1]]), x[0, 0, :2], mode="sum"),  # two rows; "max" is 2
        lambda x: x * torch.bincount(torch.tensor([0, 1])).sum(),
        lambda x: x.index_add(0, torch.tensor([0]), x),
        lambda x: x.median(),
        lambda x: F.interpolate(x, scale_factor=2),
    ],
)
def test_what_does_not_raise_on_cuda_is_not_said(function: Any) -> None:
    assert step_of(function, IMAGE).raises_on_cuda == ()


def test_the_list_is_that_of_pytorchs_documentation() -> None:
    text = torch.use_deterministic_algorithms.__doc__.split("operations will throw a")[1].partition(
        "In addition"
    )[0]
    listed = {name.rpartition(".")[2] for name in re.findall(r"\* :\w+:`([\w.]+)`", text)} - {"resize_"}
    ours = " ".join(row.text for row in training_step.documented())
    missing = sorted(name for name in listed if name not in ours)
    if torch.__version__.startswith("2.13."):
        assert (missing, len(listed) > 20) == ([], True)
    for row in training_step.documented():
        for operator in row.operators:
            assert hasattr(torch.ops.aten, operator.partition(".")[0]), operator


def test_operators_are_counted_with_ours() -> None:
    found = step_of(lambda x: F.avg_pool2d(F.avg_pool2d(x, 2), 2), IMAGE)
    assert (found.operators["aten.avg_pool2d"], found.operators["aten.avg_pool2d_backward"]) == (2, 2)
    assert not found.ours
    with quiet_patch(forward=False):
        found = step_of(lambda x: F.avg_pool2d(F.avg_pool2d(x, 2), 2), IMAGE)
    assert found.ours == {"pooltide.avg_pool2d_backward": 2}
    assert "ours: pooltide.avg_pool2d_backward, 2 ×" in str(found)


class Forgetful(torch.autograd.Function):
    """A gradient that is never the same."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        Forgetful.calls += 1
        return g * Forgetful.calls


def test_gradients_that_differ_are_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    x = torch.ones(1, 2, requires_grad=True)
    same = pt.status(model, x).step
    assert same is not None
    assert (same.differs, "bit for bit" in str(same)) == ((), True)
    model.insert(1, Call(Forgetful.apply))
    found = pt.status(model, x).step
    assert found is not None
    assert found.differs == ("0.weight", "0.bias", "1.weight", "input 0")
    assert "differed between two steps: 0.weight, 0.bias" in str(found)


class Full(nn.Module):
    """Uses everything that must be restored."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Dropout())
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("late", None)

    def forward(self, x: Any) -> Any:
        self.seen = self.seen + random.random() + np.random.rand()
        self.late = torch.ones(())
        with torch.no_grad():
            self.layers[0].weight.mul_(2)
        x.mul_(2)
        return self.layers(x)


def test_nothing_is_changed() -> None:
    model, x = Full(), torch.randn(2, 2, 3, 3)
    model(x.clone()).sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = {name: (p.grad, p.grad.clone()) for name, p in model.named_parameters()}
    buffers, kept_x, late = dict(model.named_buffers()), x.clone(), model.late
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    pt.status(model, x)
    assert (torch.equal(torch.get_rng_state(), states[0]), random.getstate() == states[1]) == (True, True)
    assert np.random.get_state()[1].tolist() == states[2]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value is buffers[name] for name, value in model.named_buffers())
    for name, parameter in model.named_parameters():
        assert parameter.grad is gradients[name][0]
        assert torch.equal(parameter.grad, gradients[name][1])
    assert torch.equal(x, kept_x)
    assert model.late is late


@pytest.mark.parametrize(("enabled", "only_warn"), [(False, False), (True, False), (True, True)])
def test_the_setting_is_restored_also_after_an_error(enabled: bool, only_warn: bool) -> None:
    def fail(x: Any) -> Any:
        raise KeyError("from the model")

    torch.use_deterministic_algorithms(enabled, warn_only=only_warn)
    try:
        assert step_of(unpool, IMAGE).raises
        with pytest.raises(KeyError, match="from the model"):
            step_of(fail, IMAGE)
        assert torch.are_deterministic_algorithms_enabled() == enabled
        assert torch.is_deterministic_algorithms_warn_only_enabled() == only_warn
    finally:
        torch.use_deterministic_algorithms(False)


@dataclass
class Output:
    loss: Any
    label: str = "a"


def test_outputs_may_be_nested() -> None:
    def nested(x: Any) -> Any:
        return {
            "a": [x, (x.to(torch.complex64),)],
            "b": Output(x.sum()),
            "c": 3,
            "d": x.detach(),
            "e": x.double(),
        }

    found = pt.status(model := Call(nested), torch.ones(3))
    assert found.step is not None
    leaves = {"weight": model.weight}
    gradient = training_step._gradients(model, (torch.ones(3),), leaves, warnings.catch_warnings())["weight"]
    assert gradient == 3 * 4  # x, complex x, its sum, and x in double


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (F.relu, TypeError, "status: model is builtin_function_or_method|status: model is function"),
        (Call(lambda x: 3), ValueError, "returns no tensor with a gradient"),
        (Call(lambda x: x.detach()), ValueError, "returns no tensor with a gradient"),
        (nn.ReLU(), ValueError, "returns no tensor with a gradient"),
        (nn.LazyLinear(2), ValueError, "status: weight of model is not initialized"),
        (
            nn.PReLU(device="meta"),
            ValueError,
            "status: weight is on meta, which computes no values; it must ",
        ),
    ],
)
def test_what_can_not_be_run_is_said(model: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        pt.status(model, torch.ones(1, 2))


def test_an_input_on_meta_is_refused() -> None:
    x = torch.zeros(1, 2, 4, 4, device="meta", requires_grad=True)
    with pytest.raises(ValueError, match=r"^status: input 0 is on meta"):
        pt.status(nn.MaxPool2d(2), x)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors(layout: Any) -> None:
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=layout, requires_grad=True)
    step = pt.status(nn.Linear(3, 2), x).step
    assert step is not None
    assert step.differs == ()
    assert step.operators
    steps = iter(range(9))
    model = nn.Identity()
    model.register_forward_hook(lambda module, inputs, output: output * (1 + next(steps)))
    step = pt.status(model, x).step
    assert step is not None
    assert step.differs == ("input 0",)


def test_other_warnings_reach_the_user() -> None:
    def warn(x: Any) -> Any:
        warnings.warn("from the model", RuntimeWarning, stacklevel=1)
        return x

    with pytest.warns(RuntimeWarning, match="from the model"):
        assert step_of(warn, IMAGE).raises == ()


def test_python_m_prints_the_status(capsys: Any) -> None:
    runpy.run_module("pooltide.torch", run_name="__main__")
    assert capsys.readouterr().out == f"{pt.status()}\n"


def test_the_example_of_the_page_prints_what_the_page_shows(capsys: Any) -> None:
    page = (DOCS / "pytorch.md").read_text("utf-8")
    section = page.partition("## status()")[2]
    snippet, shown = re.findall(r"^```(?:python)?\n(.*?)^```", section, re.M | re.S)[:2]
    exec(snippet, {})
    printed = capsys.readouterr().out
    here, there = (text.strip().partition("\n\n") for text in (printed, shown))
    assert here[2] == there[2]  # the step
    assert [line[:14] for line in here[0].splitlines()] == [line[:14] for line in there[0].splitlines()]
