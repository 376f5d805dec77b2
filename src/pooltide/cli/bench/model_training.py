"""`pooltide bench --models`: times training steps of small models, with PyTorch's pools and with ours.

The variants take steps in turns, each with its own copy of the model. Before that, each variant trains twice
from the same seed, and the weights of the two trainings are compared bit by bit: with our gradients they must
be equal. On a GPU the extra memory of a step is measured, too.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, cast

import torch

from ...torch import patch
from ...torch.training_step import deterministic_warnings
from ..output import aligned, say, tracked
from .cpu_timing import time_call, watch_other_load
from .cuda_timing import wall_seconds
from .models import MODELS, Model
from .tables import in_words, machine_of, number, other_load

STEPS = 3  # of a training whose weights are compared
Variants = dict[str, Callable[[], AbstractContextManager[Any]]]


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What was measured of one model, by variant."""

    model: str
    seconds: dict[str, float]  # of a step
    repeats: dict[str, bool]  # whether two trainings gave the same weights
    peak_bytes: dict[str, int]  # that a step allocated beyond weights and input; empty on the CPU
    others: float | None  # part of the processors that other programs took; None on a GPU


def run_models(device: str, rounds: int, as_json: bool) -> int:
    """Prints the results. Returns the exit status: 1 if a training with our gradients did not repeat."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS may not repeat its sums
    variants, absent = _variants()
    models = tracked(MODELS.items())
    results = [_measure(name, model, variants, device, rounds) for name, model in models]
    about = machine_of(device) | {"rounds": rounds}
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


class Training:
    """A model with its weights, optimizer and input; the same for the same model on one device."""

    def __init__(self, model: Model, device: str) -> None:
        torch.manual_seed(17)
        self.net = model.make().to(device)
        self.x = torch.randn(model.batch[device], *model.shape).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.net(self.x).square().mean().backward()
        self.optimizer.step()

    def weights(self) -> list[torch.Tensor]:
        for _ in range(STEPS):
            self.step()
        return list(self.net.parameters())


def _measure(name: str, model: Model, variants: Variants, device: str, rounds: int) -> ModelResult:
    repeats = {}
    for variant, using in variants.items():
        with using(), deterministic_warnings():
            first, second = (Training(model, device).weights() for _ in range(2))
        repeats[variant] = all(map(torch.equal, first, second))
    trainings = {variant: Training(model, device) for variant in variants}
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    peaks: dict[str, int] = {}
    load = watch_other_load()
    for _ in range(rounds):
        for variant, using in variants.items():
            with using():
                step = trainings[variant].step
                times[variant].append(wall_seconds(step, 1, 1) if device == "cuda" else time_call(step))
                if device == "cuda":
                    peaks[variant] = _peak_bytes(step)
    typical = {variant: median(seconds) for variant, seconds in times.items()}
    return ModelResult(name, typical, repeats, peaks, None if device == "cuda" else load())


def _peak_bytes(step: Callable[[], None]) -> int:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() - before


def _print_table(results: list[ModelResult], about: str, absent: dict[str, str]) -> None:
    variants = list(results[0].seconds)
    head = ["model", "plain ms", *(f"plain ÷ {name}" for name in variants[1:])]
    head += [f"repeats: {name}" for name in variants]
    head += [f"peak MiB: {name}" for name in results[0].peak_bytes]
    say(f"training steps, {about}\n")
    say(aligned(head, [_cells(one) for one in results]))
    if text := other_load(one.others for one in results):
        say(text)
    for name, reason in absent.items():
        say(f"{name} was not measured: {reason}")


def _cells(result: ModelResult) -> list[str]:
    plain, *others = result.seconds.values()
    cells = [result.model, f"{plain * 1e3:.2f}", *(number(plain / other) for other in others)]
    cells += ["yes" if same else "no" for same in result.repeats.values()]
    return cells + [f"{peak / 2**20:.0f}" for peak in result.peak_bytes.values()]
