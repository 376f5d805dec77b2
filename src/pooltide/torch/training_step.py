"""One training step of a model, watched: which operators run, and what is not deterministic.

`watch` runs forward, sum of the outputs and backward three times with
`torch.use_deterministic_algorithms(True, warn_only=True)`: once to list the operators, and twice to compare
the gradients bit by bit. PyTorch warns of each operator that would raise. Nothing of the model is changed.
"""

from __future__ import annotations

import random
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .patching import gradient_overrides

Tensor = torch.Tensor
_ALERT = re.compile(r"^(.+?) does not have a deterministic implementation")
_CUBLAS = "matrix products by cuBLAS, without CUBLAS_WORKSPACE_CONFIG=:4096:8"


@dataclass(frozen=True)
class Step:
    """What was found in a training step."""

    device: str
    operators: dict[str, int]  # that ran, and how often
    raises: tuple[str, ...]  # PyTorch's names of what raises on this device with deterministic algorithms
    raises_on_cuda: tuple[str, ...]  # of a step on the CPU: what raises on CUDA, by PyTorch's documentation
    differs: tuple[str, ...]  # parameters and inputs whose gradients had other bits in a second step

    @property
    def cured_by_patch(self) -> tuple[str, ...]:
        """The pools among what raises: `patch()` replaces them."""
        return tuple(name for name in self.raises + self.raises_on_cuda if is_pool(name))

    @property
    def remaining(self) -> tuple[str, ...]:
        """What raises and is no pool."""
        return tuple(name for name in self.raises + self.raises_on_cuda if not is_pool(name))

    @property
    def ours(self) -> dict[str, int]:
        """The operators of pooltide that ran, and how often."""
        return {name: count for name, count in self.operators.items() if name.startswith("pooltide.")}

    def __str__(self) -> str:
        calls = sum(self.operators.values())
        lines = [f"training step on {self.device}: {calls} calls of {len(self.operators)} operators"]
        lines += [f"  ours: {name}, {count} ×" for name, count in self.ours.items()]
        for where, names in ((self.device, self.raises), ("CUDA, by PyTorch's docs", self.raises_on_cuda)):
            for name in names:
                cure = "patch() replaces it" if is_pool(name) else "no pool, it remains"
                lines.append(f"  raises on {where}: {name} ({cure})")
        if not self.raises + self.raises_on_cuda:
            lines.append("  nothing raises under torch.use_deterministic_algorithms(True)")
        if self.differs:
            lines.append(f"  gradients that differed between two steps: {', '.join(self.differs)}")
        else:
            lines.append("  two steps gave the same gradients, bit for bit")
        return "\n".join(lines)


def is_pool(name: str) -> bool:
    """Whether an alert is of a pool, which `patch()` replaces: all pools with alerts are patched."""
    return "pool" in name.lower()


@dataclass(frozen=True)
class Documented:
    """A line of PyTorch's documentation, and the operators of aten that it is about."""

    text: str
    operators: tuple[str, ...]
    floating: bool
    arguments: dict[str, Any]

    def covers(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call of the operator, such as "median.dim", is the one that raises."""
        if name.removesuffix(".default") not in self.operators:
            return False
        tensors = [value for value in arguments.values() if isinstance(value, Tensor)]
        return (not self.floating or any(t.is_floating_point() or t.is_complex() for t in tensors)) and all(
            arguments.get(key) is not None if value == "given" else arguments.get(key) == value
            for key, value in self.arguments.items()
        )


@cache
def documented() -> tuple[Documented, ...]:
    """Returns what raises on CUDA by PyTorch's documentation."""
    rows = tomllib.loads(Path(__file__).with_name("documented_alerts.toml").read_text("utf-8"))["alert"]
    return tuple(
        Documented(
            row["documented"], tuple(row["operators"]), row.get("floating", False), row.get("arguments", {})
        )
        for row in rows
    )


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators, and collects the lines of the documentation that they are in."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: Counter[str] = Counter()
        self.documented: dict[str, None] = {}  # in the order of the step

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(func)  # such as aten.cumsum.default
        self.operators[name.removesuffix(".default")] += 1
        space, _, rest = name.partition(".")
        if space == "aten":
            names = (argument.name for argument in func._schema.arguments)
            arguments = dict(zip(names, args, strict=False)) | dict(kwargs or {})
            self.documented |= {row.text: None for row in documented() if row.covers(rest, arguments)}
        return func(*args, **(kwargs or {}))


def watch(model: torch.nn.Module, inputs: Sequence[Any]) -> Step:
    """Runs the steps and returns what was found; see `status`."""
    model = getattr(model, "_orig_mod", model)  # a compiled model has no operators to see
    leaves = _leaves(model, inputs)
    device = next((t.device for t in [*leaves.values(), *_tensors(inputs)]), torch.device("cpu"))
    recorder = _Recorder()
    with deterministic_warnings():
        with _alerts():
            _gradients(model, inputs, leaves, recorder)
        with _alerts() as alerts:  # without the recorder, which our overrides see
            first, second = (_gradients(model, inputs, leaves, nullcontext()) for _ in range(2))
    return Step(
        device=str(device),
        operators=dict(recorder.operators),
        raises=tuple(alerts),
        raises_on_cuda=_on_cuda(recorder) if device.type == "cpu" else (),
        differs=tuple(name for name in leaves if not _same_bits(first[name], second[name])),
    )


def _on_cuda(recorder: _Recorder) -> tuple[str, ...]:
    """Returns what raises on CUDA. A patched unpool keeps its name; all pools that raise are patched."""
    return tuple(text for text in recorder.documented if not (gradient_overrides.depth and is_pool(text)))


def _leaves(model: torch.nn.Module, inputs: Sequence[Any]) -> dict[str, Tensor]:
    """Returns the tensors whose gradients a step computes, by name."""
    leaves: dict[str, Tensor] = dict(model.named_parameters())
    for name, parameter in leaves.items():
        if torch.nn.parameter.is_lazy(parameter):
            raise ValueError(f"status: {name} of model is not initialized; call the model once before.")
    leaves |= {f"input {number}": tensor for number, tensor in enumerate(_tensors(inputs))}
    for name, tensor in (leaves | dict(model.named_buffers())).items():
        if tensor.is_meta:
            raise ValueError(f"status: {name} is on meta, which computes no values; it must be on a device.")
    return {name: tensor for name, tensor in leaves.items() if tensor.requires_grad}


def _gradients(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    leaves: Mapping[str, Tensor],
    recorder: AbstractContextManager[Any],
) -> dict[str, Tensor | None]:
    """Runs one step. torch.autograd.grad leaves .grad as it is."""
    with _unchanged(model, inputs), torch.enable_grad(), recorder:
        outputs = [t for t in _tensors(model(*inputs)) if t.requires_grad]
        if not outputs or not leaves:
            raise ValueError("status: model returns no tensor with a gradient; it must return at least one.")
        parts = [part for output in outputs for part in _parts(output)]
        total = sum((torch.view_as_real(t) if t.is_complex() else t).sum().to(parts[0].device) for t in parts)
        gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)  # type: ignore[arg-type]
    return dict(zip(leaves, gradients, strict=True))


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _tensors(inner)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))


@contextmanager
def _unchanged(model: torch.nn.Module, inputs: Sequence[Any]) -> Iterator[None]:
    """Restores parameters, buffers, inputs and random generators."""
    buffers = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    tensors = [*model.parameters(), *model.buffers(), *_tensors(inputs)]
    values = [(tensor, tensor.detach().clone()) for tensor in tensors if not tensor.is_inference()]
    python, numpy = random.getstate(), np.random.get_state()
    devices = sorted({t.device.index for t in tensors if t.device.type == "cuda"})
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        with torch.no_grad():
            for tensor, value in values:
                # Batch norm does not count its writes, so a tensor's _version says nothing.
                if not _same_bits(tensor, value):
                    tensor.copy_(value)
        for place, kept in buffers:
            if isinstance(place, dict):  # a scripted module's is not, and keeps its tensors
                place.clear()
                place.update(kept)


@contextmanager
def deterministic_warnings() -> Iterator[None]:
    """Makes operators without a deterministic algorithm warn."""
    enabled = torch.are_deterministic_algorithms_enabled()
    only_warn = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=only_warn)


@contextmanager
def _alerts() -> Iterator[dict[str, None]]:
    """Collects the names in PyTorch's alerts, in their order, and passes all other warnings on."""
    names: dict[str, None] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield names
    for warning in caught:
        text = str(warning.message)
        if alert := _ALERT.match(text):
            names[alert[1]] = None
        elif "CuBLAS" in text and "eterministic" in text:
            names[_CUBLAS] = None
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _same_bits(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    ours, theirs = _parts(a), _parts(b)
    return len(ours) == len(theirs) and all(
        x.shape == y.shape and torch.equal(_bytes(x), _bytes(y)) for x, y in zip(ours, theirs, strict=True)
    )


def _parts(tensor: Tensor) -> Sequence[Tensor]:
    """Returns the tensors of a nested tensor, which as a whole has no sum and no bytes; else the tensor."""
    return tensor.unbind() if tensor.is_nested else (tensor,)


def _bytes(tensor: Tensor) -> Tensor:
    dense = tensor if tensor.layout == torch.strided else tensor.to_dense()
    return dense.reshape(-1).contiguous().view(torch.uint8)
