"""Sends problems through the GPU kernels: arrays to the GPU and back, and the enumeration's checkers for a GPU.

`Planned` collects the kernels that problems need, without a GPU; `OnGpu` runs them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch

import simt_forwards
import simt_problems
from cuda_problems import alike, tiny_bands
from enumeration import Checker, Geometry, difference
from geometries import flat
from pooltide.kernels import Arrays, reference
from pooltide.kernels.cuda import launch
from pooltide.kernels.cuda.runtime.driver import DeviceFacts
from pooltide.kernels.cuda.source import Source
from pooltide.kernels.cuda.task import Launch
from pooltide.problem.problem import Problem
from simt_forwards import random_forward

DEVICE = "cuda"
LAYOUTS = ("planes", "channels_last")
GUARD = 64  # bytes before and after each result
Variant = tuple[Source, ...]  # what the launches of a kernel are compiled from


class Way(NamedTuple):
    """What an enumeration must reach. `small`: planned as if blocks and limits were tiny."""

    kernel: str
    dtype: str
    layout: str
    small: bool


def on_gpu(array: np.ndarray) -> Any:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).cuda()
    return torch.from_numpy(array).cuda()


def to_numpy(tensor: Any) -> np.ndarray:
    tensor = tensor.cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def tiny(wanted: bool) -> AbstractContextManager[None]:
    """Plans kernels as if bands and tiles were tiny, so that small problems have several of them."""
    return tiny_bands(256, 64 * 32 * 4) if wanted else nullcontext()


def variant_of(planned: tuple[Launch, ...]) -> Variant:
    return tuple(each.source for each in planned)


class GpuChecker(Checker):
    """Plans every kernel that takes a problem, with limits as usual and tiny."""

    def __init__(self, facts: DeviceFacts) -> None:
        super().__init__()
        self.facts = facts
        self.limits = (False, True)  # whether they are tiny
        self.label = ""

    def check(self, number: int, geometry: Geometry) -> None:
        self.rng = np.random.default_rng(number)  # the same values in every process
        self.label = str(geometry)
        super().check(number, geometry)

    def random(self, seed: int) -> None:
        """A random forward; limits are tiny for every second seed."""
        self.label, self.limits = f"seed {seed}", (seed % 2 == 0,)
        problem, x = random_forward(seed)
        values = np.empty(problem.batch + problem.output_plane, x.dtype)
        places = {0: None, 1: np.empty(values.shape, np.uint8), 8: np.empty(values.shape, np.int64)}
        indices = places[problem.index_bytes]
        reference.run(problem, "planes", Arrays(input=x, indices=indices, out=values), np.empty(0, np.uint8))
        self.forward(problem, x, values, indices)

    def plans(self, problem: Problem, layout: str) -> Iterator[tuple[Way, tuple[Launch, ...]]]:
        """The plans of the host build, whose kernels simt.py runs."""
        launches = simt_problems.launches if problem.gradient else simt_forwards.launches
        for small in self.limits:
            for name, planned in launches(problem, layout, small, self.facts):
                yield Way(name, problem.dtype.name, layout, small), planned


class Planned(GpuChecker):
    """Collects the variants of each way; runs nothing."""

    def __init__(self, facts: DeviceFacts) -> None:
        super().__init__(facts)
        self.found: defaultdict[Way, set[Variant]] = defaultdict(set)

    def forward(self, problem: Problem, x: Any, values: Any, places: Any) -> None:
        self.collect(problem)

    def gradient(self, problem: Problem, grad: Any, indices: Any, want: Any) -> None:
        self.collect(problem)

    def collect(self, problem: Problem) -> None:
        for layout in LAYOUTS:
            for way, planned in self.plans(problem, layout):
                self.found[way].add(variant_of(planned))


class OnGpu(GpuChecker):
    """Runs the kernels between guard bytes; collects what differs.

    `picked`: only kernels that are compiled from these sources.
    """

    def __init__(self, facts: DeviceFacts, picked: Set[Source] | None = None) -> None:
        super().__init__(facts)
        self.picked = picked
        self.reached: Counter[tuple[Way, Variant]] = Counter()
        self.wrong: list[str] = []

    def forward(self, problem: Problem, x: Any, values: Any, places: Any) -> None:
        dtype = problem.dtype.numpy
        for layout in LAYOUTS:
            want = flat(values.astype(dtype), layout)
            right = None if places is None else flat(places, layout)
            self.send(problem, layout, flat(x.astype(dtype), layout), None, want, right)

    def gradient(self, problem: Problem, grad: Any, indices: Any, want: Any) -> None:
        dtype = problem.dtype.numpy
        for layout in LAYOUTS:
            given = None if indices is None else flat(indices, layout)
            self.send(
                problem, layout, flat(grad.astype(dtype), layout), given, flat(want.astype(dtype), layout)
            )

    def send(
        self, problem: Problem, layout: str, given: Any, indices: Any, want: Any, places: Any = None
    ) -> None:
        """`given` and `indices` are read; `want` and a maximum's `places` must be written."""
        for way, planned in self.plans(problem, layout):
            variant = variant_of(planned)
            if self.picked is not None and not self.picked.issuperset(variant):
                continue
            # Gradients that are planned with tiny limits take tensors at any address, as forwards do.
            anywhere = way.small or not problem.gradient
            shift = int(self.rng.integers(2)) if anywhere else 0
            label, self.label = self.label, f"{self.label}: {problem} {way} {shift=}"  # for an exception
            prepared = launch.PreparedLaunches(problem, layout, 0, not anywhere, planned)
            out = Guarded(want, shift)
            found = None if places is None else Guarded(places, shift)
            named = found.tensor if found else None if indices is None else placed(indices, shift)
            prepared(placed(given, shift), named, out.tensor)
            differ = [out.difference(), found and found.difference()]
            self.wrong += [f"{self.label}: {said}" for said in differ if said]
            self.label = label
            self.runs += 1
            self.reached[way, variant] += 1


def placed(array: np.ndarray, shift: int) -> Any:
    """The bytes of a flat array on the GPU, `shift` elements after a multiple of 16 bytes."""
    begin = shift * array.itemsize
    memory = np.empty(begin + array.nbytes, np.uint8)
    memory[begin:] = array.view(np.uint8)
    return torch.from_numpy(memory).to(DEVICE)[begin:]


class Guarded:
    """Bytes for an array on the GPU, between guard bytes; all are 255 until a kernel writes them."""

    def __init__(self, want: np.ndarray, shift: int) -> None:
        self.want, self.begin = want, GUARD + shift * want.itemsize
        self.memory = torch.full((self.begin + want.nbytes + GUARD,), 255, dtype=torch.uint8, device=DEVICE)
        self.tensor = self.memory[self.begin : -GUARD]

    def difference(self) -> str | None:
        memory = self.memory.cpu().numpy()
        found = memory[self.begin : -GUARD].view(self.want.dtype)
        if not alike(found, self.want):
            return difference(found, self.want)
        outside = np.concatenate([memory[: self.begin], memory[-GUARD:]])
        return None if (outside == 255).all() else "bytes outside the result are written"
