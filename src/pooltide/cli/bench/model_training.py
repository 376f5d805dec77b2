"""`pooltide bench --models`: times training steps of whole networks, with PyTorch's pools and with ours.

The variants take steps in turns, each with its own copy of the network. Before that, each variant trains
twice from the same seed, and the weights of the two trainings are compared bit by bit: with our gradients
they must be equal. On a GPU, steps run under autocast in bfloat16, and the time of the host, that of the
device's kernels and the extra memory of a step are measured, too.
"""

from __future__ import annotations

import inspect
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from statistics import median
from types import FunctionType
from typing import Any, cast

import torch

from ...torch import patch
from ...torch.training_step import deterministic_warnings
from ..output import aligned, say, tracked
from .cpu_timing import time_call, watch_other_load
from .cuda_timing import device_seconds, host_seconds, wall_seconds
from .networks import NETWORKS, Network
from .printing import in_words, machine_of, number, other_load

STEPS = 3  # of a training whose weights are compared
COMPILE: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "dynamic": {"dynamic": True},
}
Variants = dict[str, Callable[[], AbstractContextManager[Any]]]


@dataclass(frozen=True, slots=True)
class Setting:
    """How the networks are trained."""

    device: str
    scale: float  # of the sides of images
    compile: str | None  # a key of COMPILE; None for eager steps
    rounds: int


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What was measured of one network, by variant."""

    model: str
    input: tuple[int, ...]
    seconds: dict[str, float]  # of a step
    host_seconds: dict[str, float]  # until the host has submitted a step; empty on the CPU
    device_seconds: dict[str, float]  # of the kernels of a step, without the gaps; empty on the CPU
    repeats: dict[str, bool]  # whether two trainings gave the same weights
    peak_bytes: dict[str, int]  # that a step allocated beyond weights and input; empty on the CPU
    others: float | None  # part of the processors that other programs took; None on a GPU


def run_models(names: Sequence[str], setting: Setting, as_json: bool) -> int:
    """Prints the results. Returns the exit status: 1 if a training with our gradients did not repeat."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS may not repeat its sums
    variants, absent = _variants()
    results = [_measure(name, NETWORKS[name], variants, setting) for name in tracked(names)]
    about = machine_of(setting.device) | {"rounds": setting.rounds, "scale": setting.scale}
    about |= {"compile": setting.compile} if setting.compile else {}
    if as_json:
        say(json.dumps(about | {"skipped": absent, "models": [asdict(one) for one in results]}, indent=1))
    else:
        _print_table(results, in_words(about), absent)
    failed = [f"{one.model}, {name}" for one in results for name, same in one.repeats.items() if not same]
    failed = [name for name in failed if not name.endswith(", plain")]
    for name in failed:
        say(f"{name}: two trainings from the same seed gave different weights", err=True)
    return 1 if failed else 0


def _variants() -> tuple[Variants, dict[str, str]]:
    """The variants, and why others are absent."""
    variants: Variants = {"plain": nullcontext, "patch()": patch}
    forward, with_options = "patch(forward=True)", cast(Callable[..., Any], patch)
    if "forward" not in inspect.signature(patch).parameters:
        return variants, {forward: "this version of pooltide has no such option"}
    return variants | {forward: lambda: with_options(forward=True)}, {}


def _call(net: Any, x: torch.Tensor) -> Any:
    return net(x)


@cache
def compiled_call(variant: str, mode: str) -> Callable[..., Any]:
    """Returns a compiled function that calls a network.

    The compiler keeps graphs by the code that it compiled. So each variant has a copy of the code: a graph
    that was traced without a patch must not be found under it.
    """
    code = _call.__code__.replace(co_name=variant)
    return torch.compile(FunctionType(code, globals(), variant), fullgraph=True, **COMPILE[mode])


class Training:
    """A network with its weights, optimizer and input; the same for the same network on one device."""

    def __init__(self, network: Network, setting: Setting, variant: str) -> None:
        torch.manual_seed(17)
        self.net = network.make().to(setting.device)
        self.x = torch.randn(network.input(setting.device, setting.scale)).to(setting.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.call = compiled_call(variant, setting.compile) if setting.compile else _call
        self.autocast = setting.device == "cuda"

    def step(self) -> None:
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16) if self.autocast else nullcontext():
            loss = self.call(self.net, self.x).square().mean()
        loss.backward()
        self.optimizer.step()

    def weights(self) -> list[torch.Tensor]:
        for _ in range(STEPS):
            self.step()
        return list(self.net.parameters())


def _measure(name: str, network: Network, variants: Variants, setting: Setting) -> ModelResult:
    repeats, trainings = {}, {}
    for variant, using in variants.items():
        with _patched(using), deterministic_warnings():
            first, second = (Training(network, setting, variant).weights() for _ in range(2))
        repeats[variant] = all(map(torch.equal, first, second))
        del first, second
    trainings = {variant: Training(network, setting, variant) for variant in variants}
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    hosts: dict[str, list[float]] = {}
    devices: dict[str, float] = {}
    peaks: dict[str, int] = {}
    load = watch_other_load()
    for _ in range(setting.rounds):
        for variant, using in variants.items():
            step = trainings[variant].step
            with _patched(using):
                if setting.device == "cpu":
                    times[variant].append(time_call(step))
                    continue
                times[variant].append(wall_seconds(step, 1, 1))
                hosts.setdefault(variant, []).append(host_seconds(step))
                devices[variant] = device_seconds(step)
                peaks[variant] = _peak_bytes(step)
    others = None if setting.device == "cuda" else load()
    torch.compiler.reset()  # the graphs of this network
    inputs = tuple(trainings["plain"].x.shape)
    return ModelResult(name, inputs, _medians(times), _medians(hosts), devices, repeats, peaks, others)


def _medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {variant: median(seconds) for variant, seconds in times.items()}


@contextmanager
def _patched(using: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """The patch of a variant. It warns of graphs that were compiled before; each variant has its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "patch: models compiled before it", UserWarning)
        with using():
            yield


def _peak_bytes(step: Callable[[], None]) -> int:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() - before


def _print_table(results: list[ModelResult], about: str, absent: dict[str, str]) -> None:
    variants = list(results[0].seconds)
    head = ["network", "input", "plain ms", *(f"plain ÷ {name}" for name in variants[1:])]
    head += [f"repeats: {name}" for name in variants]
    for title, of in (
        ("host ms", "host_seconds"),
        ("device ms", "device_seconds"),
        ("peak MiB", "peak_bytes"),
    ):
        head += [f"{title}: {name}" for name in getattr(results[0], of)]
    say(f"training steps, {about}\n")
    say(aligned(head, [_cells(one) for one in results]))
    if text := other_load(one.others for one in results):
        say(text)
    for name, reason in absent.items():
        say(f"{name} was not measured: {reason}")


def _cells(result: ModelResult) -> list[str]:
    plain, *others = result.seconds.values()
    cells = [result.model, "×".join(map(str, result.input)), f"{plain * 1e3:.2f}"]
    cells += [number(plain / other) for other in others]
    cells += ["yes" if same else "no" for same in result.repeats.values()]
    for seconds in (result.host_seconds, result.device_seconds):
        cells += [f"{one * 1e3:.2f}" for one in seconds.values()]
    return cells + [f"{peak / 2**20:.0f}" for peak in result.peak_bytes.values()]
