"""Sends problems through the GPU kernels: arrays to the GPU and back, and the enumeration's checker for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import torch
from cuda_problems import alike, any_cost, flat, tiny_bands
from simt_forwards import random_forward, tiny_limits

from enumeration import Checker
from pooltide.kernels import Arrays, reference
from pooltide.kernels.cuda.choice import KERNELS
from pooltide.kernels.cuda.driver import device_facts
from pooltide.kernels.cuda.task import Task
from pooltide.problem.problem import Problem


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
    return tiny_bands(256, 64 * 32 * 4, 12) if wanted else nullcontext()


class OnGpu(Checker):
    """Sends geometries through every GPU kernel that takes them, with bands and limits as usual and tiny."""

    def launches(self, problem: Problem, layout: str) -> Iterator[tuple[str, Any]]:
        from pooltide.kernels.cuda import launch

        small = self.runs % 2 == 0
        with any_cost(), tiny(small), tiny_limits() if small else nullcontext():
            task = Task(problem, layout, device_facts(0))
            # the first kernel of means keeps their order of additions, which no other kernel does
            able = KERNELS[problem.kind][: 1 if problem.quotient == "mean" else None]
            found = [(name, planner(task)) for name, planner in able]
        for name, planned in found:
            if not isinstance(planned, str):
                self.runs += 1
                yield name, launch.PreparedLaunches(problem, layout, 0, planned=planned)

    def forward(self, problem: Problem, x: Any, values: Any, places: Any) -> None:
        """`x` begins at a multiple of 16 bytes, or one element later."""
        dtype = problem.dtype.numpy
        for layout in ("planes", "channels_last"):
            given = on_gpu(flat(x.astype(dtype), layout))
            moved = torch.cat([given[:1], given])[1:]
            want = flat(values.astype(dtype), layout)
            for name, prepared in self.launches(problem, layout):
                out = Guarded(on_gpu(want))
                found = None if places is None else Guarded(on_gpu(places.ravel()))
                prepared(moved if self.runs // 2 % 2 else given, found and found.tensor, out.tensor)
                where = f"{problem} {layout} {name}"
                assert out.holds(want), where
                assert found is None or found.holds(flat(places, layout)), f"{where}: places"

    def random(self, seed: int) -> None:
        problem, x = random_forward(seed)
        values = np.empty(problem.batch + problem.output_plane, x.dtype)
        places = {0: None, 1: np.empty(values.shape, np.uint8), 8: np.empty(values.shape, np.int64)}
        indices = places[problem.index_bytes]
        reference.run(problem, "planes", Arrays(input=x, indices=indices, out=values), np.empty(0, np.uint8))
        self.forward(problem, x, values, indices)

    def gradient(self, problem: Problem, grad: Any, indices: Any, want: Any) -> None:
        for layout in ("planes", "channels_last"):
            rounded = flat(want.astype(problem.dtype.numpy), layout)
            given = None if indices is None else on_gpu(flat(indices, layout))
            cotangent = on_gpu(flat(grad.astype(problem.dtype.numpy), layout))
            for name, prepared in self.launches(problem, layout):
                out = Guarded(on_gpu(rounded))
                prepared(cotangent, given, out.tensor, None)
                assert out.holds(rounded), f"{problem} {layout} {name}"


class Guarded:
    """A flat tensor like another one, between guard bytes; all bytes are 255 until a kernel writes them."""

    GUARD = 64

    def __init__(self, like: Any) -> None:
        size = like.numel() * like.element_size()
        self.memory = torch.full((size + 2 * self.GUARD,), 255, dtype=torch.uint8, device="cuda")
        self.tensor = self.memory[self.GUARD : size + self.GUARD].view(like.dtype)

    def holds(self, want: np.ndarray) -> bool:
        memory = self.memory.cpu().numpy()
        found = memory[self.GUARD : -self.GUARD].view(want.dtype)
        guards = np.concatenate([memory[: self.GUARD], memory[-self.GUARD :]])
        return alike(found, want) and bool((guards == 255).all())
