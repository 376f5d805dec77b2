"""Every way a model runs: the same result as in plain PyTorch, under both kinds of patches."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from pools import quiet_patch  # noqa: E402
from pooltide.torch.releases import can_call_aten  # noqa: E402

pytestmark = pytest.mark.skipif(not can_call_aten(), reason="this release has no patch(forward=True)")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.pool = nn.Conv2d(1, 5, 3), nn.MaxPool2d(3, 2, 1)
        self.last, self.flat = nn.Conv2d(5, 3, 3), nn.AdaptiveMaxPool2d((2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool2d(self.pool(self.first(x)), 2, 1)
        return F.adaptive_avg_pool2d(self.flat(self.last(x)), (1, 2))


def model() -> Model:
    torch.manual_seed(3)
    return Model()


def images() -> Any:
    return torch.randn(2, 1, 17, 19, generator=torch.Generator().manual_seed(4))


def gradients(model: Any, x: Any) -> list[Any]:
    loss = model(x).square().sum()
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def hooks() -> list[Any]:
    m, seen = model(), []
    m.pool.register_forward_hook(lambda _, __, y: seen.append(y.detach().clone()))
    m.pool.register_full_backward_hook(lambda _, gx, gy: seen.extend([gx[0].clone(), gy[0].clone()]))
    return gradients(m, images()) + seen


def checkpointed() -> list[Any]:
    from torch.utils.checkpoint import checkpoint

    found = []
    for reentrant in (False, True):
        m = model()
        checkpoint(m, images().requires_grad_(), use_reentrant=reentrant).square().sum().backward()
        found += [p.grad for p in m.parameters()]
    with torch.autograd.graph.save_on_cpu():
        return found + gradients(m, images())


def scaled() -> list[Any]:
    m = model()
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for _ in range(2):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = m(images()).square().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return [p.detach() for p in m.parameters()]


def threads() -> list[Any]:
    results: list[Any] = [None] * 4

    def train(at: int) -> None:
        m, x = Model(), images() + at
        m.load_state_dict(model_state)
        for _ in range(5):
            results[at] = gradients(m, x)

    model_state = model().state_dict()
    running = [threading.Thread(target=train, args=(at,)) for at in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return [tensor for result in results for tensor in result]


def inferred() -> list[Any]:
    m, x = model(), images()
    found = []
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found += [m(x), m(x)]
    return found


def exported() -> list[Any]:
    program = torch.export.export(model(), (images(),))
    return [program.module()(images())]


def traced() -> list[Any]:
    m, x = model(), images()
    graph = make_fx(lambda x: torch.autograd.grad(m(x).square().sum(), x)[0])(x.requires_grad_())
    return [graph(x), *gradients(torch.jit.trace(m, x.detach()), x), *gradients(torch.jit.script(m), x)]


def twice() -> list[Any]:
    m, x = model(), images().requires_grad_()
    (first,) = torch.autograd.grad(m(x).square().sum(), x, create_graph=True)
    return [first.detach(), *torch.autograd.grad(first.square().sum(), [x, m.first.weight])]


class Functions(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Calls(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Tagged(torch.Tensor):
    """A tensor that stays one through every function, as MONAI's MetaTensor does."""


def followed() -> list[Any]:
    found = []
    for mode in (Functions, Calls):
        with mode():
            found += gradients(model(), images())
    found += gradients(model(), images().as_subclass(Tagged))
    return [tensor.as_subclass(torch.Tensor) for tensor in found]


def quantized() -> list[Any]:
    x = torch.quantize_per_tensor(images(), 0.1, 3, torch.quint8)
    pooled = F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, (2, 3))
    return [y.dequantize() for y in pooled]


def functional_call() -> list[Any]:
    m, x = model(), images()
    parameters = {name: p.detach() for name, p in m.named_parameters()}
    loss = lambda p: torch.func.functional_call(m, p, (x,)).square().sum()  # noqa: E731
    per_image = torch.func.vmap(
        torch.func.grad(lambda p, x: torch.func.functional_call(m, p, (x[None],)).square().sum()), (None, 0)
    )(parameters, x)
    return [*torch.func.grad(loss)(parameters).values(), *per_image.values()]


def transformed() -> list[Any]:
    m, x = model(), images()
    run = lambda x: m(x).square().sum()  # noqa: E731
    return [*torch.func.jvp(run, (x,), (x.cos(),)), torch.func.jacrev(m)(x[:1]), torch.func.grad(run)(x)]


class Pooled(torch.utils.data.Dataset[Any]):
    """Pools each image where it is loaded: in a process of a DataLoader."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, at: int) -> Any:
        with torch.no_grad():
            return F.max_pool2d(F.avg_pool2d(images()[at % 2] + at, 2, 1), 3, 2, 1)


def loaded() -> list[Any]:
    return list(torch.utils.data.DataLoader(Pooled(), batch_size=2, num_workers=2))


def trained_by_lightning() -> list[Any]:
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = model()

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(batch).square().sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **quiet)
    trainer.fit(module, torch.utils.data.DataLoader(images(), batch_size=1))
    return [p.detach() for p in module.parameters()]


def trained_by_accelerate() -> list[Any]:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    m = model()
    accelerator = accelerate.Accelerator(cpu=True)
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    m, optimizer, batches = accelerator.prepare(m, optimizer, torch.utils.data.DataLoader(images()))
    for batch in batches:
        optimizer.zero_grad()
        accelerator.backward(m(batch).square().sum())
        optimizer.step()
    return [p.detach() for p in m.parameters()]


def fake() -> list[Any]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        found = gradients(Model(), torch.empty(2, 1, 17, 19))
    meta = F.max_pool2d(torch.empty(2, 3, 9, 9, device="meta"), 2)
    return [torch.zeros(tensor.shape) for tensor in (*found, meta)]


WAYS: dict[str, Callable[[], list[Any]]] = {
    "eager": lambda: gradients(model(), images()),
    "hooks": hooks,
    "second derivatives": twice,
    "modes and subclasses": followed,
    "traced and scripted": traced,
    "quantized": quantized,
    "checkpoint": checkpointed,
    "autocast and GradScaler": scaled,
    "deepcopy": lambda: gradients(copy.deepcopy(model()), images()),
    "pickle": lambda: gradients(pickle.loads(pickle.dumps(model())), images()),
    "threads": threads,
    "inference": inferred,
    "export": exported,
    "torch.func": functional_call,
    "forward mode": transformed,
    "DataLoader": loaded,
    "Lightning": trained_by_lightning,
    "accelerate": trained_by_accelerate,
    "fake and meta": fake,
    "channels_last": lambda: gradients(
        model().to(memory_format=torch.channels_last), images().to(memory_format=torch.channels_last)
    ),
}


@pytest.mark.parametrize("forward", [False, True], ids=["patch()", "patch(forward=True)"])
@pytest.mark.parametrize("way", WAYS)
def test_the_result_is_that_of_plain_pytorch(way: str, forward: bool) -> None:
    run = WAYS[way]
    must = run()
    with quiet_patch(forward=forward):
        first, again = run(), run()
    assert len(must) == len(first) == len(again)
    # PyTorch adds float16 in float16; ours adds it in float32.
    close = {"rtol": 1e-2, "atol": 1e-2} if "autocast" in way else {"rtol": 1e-5, "atol": 1e-6}
    for theirs, ours, second in zip(must, first, again, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, **close)
        torch.testing.assert_close(second, ours, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_a_package_of_aotinductor_has_the_results_of_plain_pytorch(tmp_path: Any) -> None:
    """Its pools are those of the compiler, whether it was made under a patch or not."""

    def packaged(name: str) -> Any:
        program = torch.export.export(model(), (images(),))
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / name))
        return torch._inductor.aoti_load_package(path)

    must = model()(images())
    plain = packaged("plain.pt2")
    with quiet_patch(forward=True):
        torch.testing.assert_close(packaged("patched.pt2")(images()), must, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(plain(images()), must, rtol=1e-5, atol=1e-6)
