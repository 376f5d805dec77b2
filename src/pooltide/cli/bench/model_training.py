"""`pooltide bench --models`: times training steps of whole networks, with PyTorch's pools and with ours.

Each variant has a process, so that plain PyTorch is one that was never patched, and the processes take steps
in turns. Before that, each variant trains twice from the same seed, and the weights of the two trainings are
compared bit by bit: with our gradients they must be equal. On a GPU, steps run under autocast in bfloat16,
and the time of the host, that of the device's kernels and the extra memory of a step are measured, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context, parent_process
from statistics import mean, median
from threading import Thread
from typing import Any

import torch

from ...kernels.threads import get_num_threads
from ...torch import patch, wait_for_kernels
from ...torch.releases import can_call_aten
from ...torch.training_step import deterministic_warnings
from ..output import aligned, say, tracked
from .cpu_timing import order, time_call, use_threads, watch_other_load
from .cuda_timing import device_seconds, host_seconds, wall_seconds
from .networks import NETWORKS, Network
from .printing import in_words, machine_of, number, other_load

STEPS = 3  # of a training whose weights are compared, and that are timed together on a GPU
COMPILE: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "dynamic": {"dynamic": True},
}
VARIANTS: dict[str, dict[str, Any] | None] = {  # the arguments of `patch`
    "plain": None,
    "patch()": {},
    "patch(forward=True)": {"forward": True},
}


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
    with ExitStack() as stack:
        variants = [name for name in VARIANTS if "forward" not in name or can_call_aten()]
        workers = {variant: stack.enter_context(worker(variant, get_num_threads())) for variant in variants}
        results = [_measure(name, NETWORKS[name], workers, setting) for name in tracked(names)]
    about = machine_of(setting.device) | {"rounds": setting.rounds, "scale": setting.scale}
    about |= {"compile": setting.compile} if setting.compile else {}
    if as_json:
        say(json.dumps(about | {"models": [asdict(one) for one in results]}, indent=1))
    else:
        _print_table(results, in_words(about))
    failed = [f"{one.model}, {name}" for one in results for name, same in one.repeats.items() if not same]
    failed = [name for name in failed if not name.endswith(", plain")]
    for name in failed:
        say(f"{name}: two trainings from the same seed gave different weights", err=True)
    return 1 if failed else 0


def worker(variant: str, threads: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=begin, initargs=(variant, threads))


def begin(variant: str, threads: int) -> None:
    """Prepares a process: the patch of its variant stays."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS may not repeat its sums
    use_threads(threads)
    Thread(target=_end_with_the_command, daemon=True).start()
    if (arguments := VARIANTS[variant]) is not None:
        patch(**arguments)


def _end_with_the_command() -> None:
    """A worker whose command was killed would wait for work forever."""
    if (command := parent_process()) is not None:
        command.join()
        os._exit(1)


def _call(net: Any, x: torch.Tensor) -> Any:
    return net(x)


@cache
def compiled_call(mode: str) -> Callable[..., Any]:
    """A function that calls a network; a second training of the network finds the graphs of the first."""
    return torch.compile(_call, fullgraph=True, **COMPILE[mode])


class Training:
    """A network with its weights, optimizer and input; the same for the same network on one device."""

    def __init__(self, network: Network, setting: Setting) -> None:
        torch.manual_seed(17)
        self.net = network.make().to(setting.device)
        self.x = torch.randn(network.input(setting.device, setting.scale)).to(setting.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.call = compiled_call(setting.compile) if setting.compile else _call
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


trainings: list[Training] = []  # the one that this process times


def prepare(network: Network, setting: Setting) -> bool:
    """Returns whether two trainings give the same weights. The second is the one that will be timed."""
    trainings.clear()
    torch.compiler.reset()  # the graphs of the network before
    torch.cuda.empty_cache()  # the other variants need memory, too
    with deterministic_warnings():
        first = [weight.detach().clone() for weight in Training(network, setting).weights()]
        trainings.append(Training(network, setting))
        same = all(map(torch.equal, first, trainings[0].weights()))
    # A compiler would compile again if this setting changed.
    torch.use_deterministic_algorithms(setting.compile is not None, warn_only=True)
    trainings[0].step()
    wait_for_kernels()
    return same


def time_on_cpu() -> tuple[float, float]:
    """Returns the seconds of a step, and the part of the processors that other programs took."""
    load = watch_other_load()
    return time_call(trainings[0].step), load()


def time_on_gpu() -> tuple[float, float]:
    """Returns the seconds of a step, and those until the host has submitted it."""
    step = trainings[0].step
    return wall_seconds(step, STEPS, 1), host_seconds(step)


def device_and_bytes() -> tuple[float, int]:
    step = trainings[0].step
    step()  # warms up: another process had the device
    return median(device_seconds(step) for _ in range(3)), _peak_bytes(step)


def _measure(
    name: str, network: Network, workers: dict[str, ProcessPoolExecutor], setting: Setting
) -> ModelResult:
    preparing = {variant: worker.submit(prepare, network, setting) for variant, worker in workers.items()}
    repeats = {variant: one.result() for variant, one in preparing.items()}
    cuda = setting.device == "cuda"
    times: dict[str, list[float]] = {variant: [] for variant in workers}
    hosts: dict[str, list[float]] = {variant: [] for variant in workers if cuda}
    loads: list[float] = []
    for turn in range(setting.rounds):
        for variant in order(list(workers), turn):
            time, other = workers[variant].submit(time_on_gpu if cuda else time_on_cpu).result()
            times[variant].append(time)
            (hosts[variant] if cuda else loads).append(other)
    devices: dict[str, float] = {}
    peaks: dict[str, int] = {}
    for variant in workers if cuda else ():
        devices[variant], peaks[variant] = workers[variant].submit(device_and_bytes).result()
    others = None if cuda else mean(loads)
    inputs = network.input(setting.device, setting.scale)
    return ModelResult(name, inputs, _medians(times), _medians(hosts), devices, repeats, peaks, others)


def _medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {variant: median(seconds) for variant, seconds in times.items()}


def _peak_bytes(step: Callable[[], None]) -> int:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() - before


def _print_table(results: list[ModelResult], about: str) -> None:
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


def _cells(result: ModelResult) -> list[str]:
    plain, *others = result.seconds.values()
    cells = [result.model, "×".join(map(str, result.input)), f"{plain * 1e3:.2f}"]
    cells += [number(plain / other) for other in others]
    cells += ["yes" if same else "no" for same in result.repeats.values()]
    for seconds in (result.host_seconds, result.device_seconds):
        cells += [f"{one * 1e3:.2f}" for one in seconds.values()]
    return cells + [f"{peak / 2**20:.0f}" for peak in result.peak_bytes.values()]
