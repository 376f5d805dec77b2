"""A GPU whose memory is the host's and whose kernels are the reference.

Everything above the driver is real: the choice of the kernel, its tables, the arguments of a launch, and the
compiled code that launches. Tensors on the CPU take the way of tensors on CUDA.
"""

from __future__ import annotations

import ctypes
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

from cuda_problems import H200
from fake_driver import Config, Driver
from pooltide.kernels import Arrays, plan, reference
from pooltide.kernels.calls import CALLS
from pooltide.kernels.cuda import launch
from pooltide.kernels.cuda.runtime import driver
from pooltide.kernels.cuda.source import Source
from pooltide.kernels.cuda.task import Task
from pooltide.problem.problem import Problem
from pooltide.torch import tensor_calls
from pooltide.torch.pools import forward

FACTS = H200
_INDICES = {0: None, 1: np.uint8, 4: np.int32, 8: np.int64}


def install(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """Returns the list of the problems that were launched, in order."""
    CALLS.clear()  # of kernels of the CPU
    launched: list[Problem] = []
    planned: list[tuple[Problem, str]] = []
    followers: set[Source] = set()  # of second launches
    kernels: list[tuple[Source, Problem, str, bool]] = []  # by their handles: source, problem, layout, first
    choose, generally = launch.tuned.plan, launch.general

    def watched(task: Task) -> Any:
        planned.append((task.problem, task.layout))
        return seen(choose(task))

    def seen(launches: Any) -> Any:
        if not isinstance(launches, str):  # a reason why there are none
            followers.update(x.source for x in launches[1:])
        return launches

    def compiled(source: Source, device: int) -> driver.Kernel:
        kernels.append((source, *planned[-1], source not in followers))
        return driver.Kernel(source, device, len(kernels))

    def run(config: Config, function: int, arguments: int) -> int:
        source, problem, layout, first = kernels[function - 1]
        if first:  # the second one would compute again what lacks gradients
            launched.append(problem)
            names = [name for _, name in source.parameters[: source.pointers]]
            addresses = (ctypes.c_uint64 * len(names)).from_address(arguments)
            compute(problem, layout, dict(zip(names, addresses, strict=True)))
        return 0

    working = Driver(run)
    monkeypatch.setattr(driver, "_driver", lambda: working)
    monkeypatch.setattr(driver.Kernel, "early", False)
    monkeypatch.setattr(launch.tuned, "plan", watched)
    monkeypatch.setattr(launch, "general", lambda task: seen(generally(task)))
    monkeypatch.setattr(launch, "compiled", compiled)
    monkeypatch.setattr(launch, "device_facts", lambda device: FACTS)
    monkeypatch.setattr(launch, "new_record", lambda _: torch.tensor([0, 2**63 - 1]))
    monkeypatch.setattr(launch, "record", cache(lambda device: torch.tensor([0, 2**63 - 1])))
    monkeypatch.setattr(launch, "new_counts", lambda count, device: torch.empty(count, dtype=torch.int32))
    monkeypatch.setattr(launch, "prepare", cache(launch.PreparedLaunches))
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, device: tensor)
    for module, name in ((torch.cuda, "is_current_stream_capturing"), (launch, "_is_capturing")):
        monkeypatch.setattr(module, name, lambda: False)
    # PyTorch's packages with CUDA raise in these two on a machine without a GPU.
    monkeypatch.setattr(launch, "current_device", lambda: 0)
    monkeypatch.setattr(launch, "current_stream", lambda device: 0)
    monkeypatch.setattr(plan, "gpu_backend", lambda: launch)
    monkeypatch.setattr(tensor_calls, "_is_capturing", lambda: False)
    for module in (tensor_calls, forward):
        monkeypatch.setattr(module, "gpu_number", lambda device: 0)
    return launched


def compute(problem: Problem, layout: str, addresses: dict[str, int]) -> None:
    """Runs the reference on memory; `addresses` by the names of the kernels' parameters."""

    def at(address: int, plane: tuple[int, ...], dtype: Any) -> Any:
        n, c = problem.batch
        shape = (n, c, *plane) if layout == "planes" else (n, *plane, c)
        size = prod(shape) * np.dtype(dtype).itemsize
        memory = np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)
        return memory if layout == "planes" else np.moveaxis(memory, -1, 1)

    cells, windows, dtype = problem.input_plane, problem.output_plane, problem.dtype.numpy
    indexed = _INDICES[problem.index_bytes]
    places = None if indexed is None else at(addresses[_places(problem)], windows, indexed)
    if problem.gradient:
        arrays = Arrays(
            at(addresses["grad"], windows, dtype), None, places, at(addresses["out"], cells, dtype)
        )
    else:
        arrays = Arrays(None, at(addresses["x"], cells, dtype), places, at(addresses["out"], windows, dtype))
    scratch = np.empty(reference.scratch(problem), np.uint8)
    if fault := reference.run(problem, layout, arrays, scratch):
        record = (ctypes.c_int64 * 2).from_address(addresses["faults"])
        record[0] += fault.number
        record[1] = min(record[1], fault.position)


def _places(problem: Problem) -> str:
    return "indices" if problem.gradient else "places"
