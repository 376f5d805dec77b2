"""From a problem to who computes it and what must be copied on the way. Metadata only; cached.

The first backend that doesn't refuse is chosen; the others' reasons are kept. A backend works in
some memory layouts; an array that lies otherwise is copied into scratch, and the plan says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .backends import IndexFault, cpu, reference
from .geometry import is_long
from .problem import Problem
from .rounding import round_gradient

Array = NDArray[Any]
BACKENDS: dict[str, ModuleType] = {"cpu": cpu, "reference": reference}
ENVIRONMENT = "POOLTIDE_BACKEND"
_ALIGN = 64


class NoBackend(RuntimeError):
    """Every backend refused; the text has each one's reason."""


@dataclass(frozen=True, slots=True)
class Plan:
    problem: Problem
    backend: str
    layout: str  # what the kernel works in: planes | channels_last | strided
    copied: tuple[str, ...]  # of grad_output, indices, out: those that go through scratch
    refused: tuple[tuple[str, str], ...]  # backends before the chosen one, and their reasons
    kernel_scratch: int

    @property
    def scratch(self) -> int:
        """Bytes of workspace: the copies, then what the kernel itself needs."""
        copies = sum(_aligned(_bytes(self.problem, role)) for role in self.copied)
        return copies + self.kernel_scratch

    def __str__(self) -> str:
        lines = [f"problem  {self.problem}", f"backend  {self.backend}, working on {self.layout}"]
        lines += [f"refused  {name}: {reason}" for name, reason in self.refused]
        lines += [f"copied   {role}" for role in self.copied]
        return "\n".join([*lines, f"scratch  {self.scratch} bytes"])


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> str:
    """How a 5-D (N, C, D, H, W) array lies in memory; strides count elements."""
    if 0 in shape or _dense(shape, strides, (0, 1, 2, 3, 4)):
        return "planes"
    return "channels_last" if _dense(shape, strides, (0, 2, 3, 4, 1)) else "strided"


def _dense(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    step = 1
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != step:
            return False
        step *= shape[axis]
    return True


def make_plan(problem: Problem, layouts: tuple[str, ...], only: str | None = None) -> Plan:
    """`layouts` are those of grad_output, (indices,) out; `only` names the one backend to use."""
    return _planned(problem, layouts, only or os.environ.get(ENVIRONMENT) or None)


@lru_cache(maxsize=4096)
def _planned(problem: Problem, layouts: tuple[str, ...], only: str | None) -> Plan:
    refused: list[tuple[str, str]] = []
    if only is not None and only not in BACKENDS:
        raise NoBackend(f"backend {only!r} is unknown; known are {', '.join(BACKENDS)}")
    for name in (only,) if only else BACKENDS:
        backend = BACKENDS[name]
        if reason := backend.refuse(problem):
            refused.append((name, reason))
            continue
        layout, copied = arrange(problem, layouts, backend.LAYOUTS)
        return Plan(problem, name, layout, copied, tuple(refused), backend.scratch(problem))
    raise NoBackend("; ".join(f"{name}: {reason}" for name, reason in refused))


def shortcut(plan: Plan) -> Callable[..., Any] | None:
    """The chosen kernel itself, where nothing needs to be copied for it, or None.

    None for long axes too, whose tables should not stay in a cache. The kernel takes (grad_output, None,
    indices, out, threads). It returns None when all is well, and NotImplemented, with nothing written, for
    arrays that it can't take.
    """
    if plan.backend != "cpu" or plan.copied or is_long(plan.problem.axes):
        return None
    return cpu.prepare(plan.problem, plan.layout).run


def arrange(problem: Problem, layouts: tuple[str, ...], able: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The layout to work in, and the roles that must be copied into it."""
    roles = _roles(problem)
    if "strided" in able:
        layout = layouts[0] if len(set(layouts)) == 1 else "strided"
        copied: list[str] = []
    else:
        layout = layouts[-1] if layouts[-1] in able else "planes"
        both = _lies_both_ways(problem)
        copied = [
            role
            for role, lies in zip(roles, layouts, strict=True)
            if lies != layout and (lies == "strided" or role not in both)
        ]
    if problem.rounding != "keep" and "grad_output" not in copied:
        copied.insert(0, "grad_output")
    return layout, tuple(copied)


def _lies_both_ways(problem: Problem) -> set[str]:
    """Roles whose dense arrays are planes and channels-last at once."""
    one = {"grad_output": prod(problem.output_plane), "indices": prod(problem.output_plane)}
    one["out"] = prod(problem.input_plane)
    return {role for role, cells in one.items() if cells == 1 or problem.batch[1] == 1}


def _roles(problem: Problem) -> tuple[str, ...]:
    return ("grad_output", "indices", "out") if problem.index_dtype else ("grad_output", "out")


def _bytes(problem: Problem, role: str) -> int:
    plane, dtype = problem.output_plane, problem.dtype
    if role == "out":
        plane = problem.input_plane
    elif role == "indices":
        assert problem.index_dtype is not None
        dtype = problem.index_dtype
    return problem.planes * prod(plane) * dtype.itemsize


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def execute(
    plan: Plan, grad_output: Array, indices: Array | None, out: Array, workspace: Array | None = None
) -> IndexFault | None:
    """Compute. Arrays are 5-D with the layouts planned for; `workspace` has plan.scratch bytes."""
    problem = plan.problem
    arrays: dict[str, Array | None] = {"grad_output": grad_output, "indices": indices, "out": out}
    if workspace is None:
        workspace = np.empty(plan.scratch, dtype=np.uint8)
    at = 0
    for role in plan.copied:
        source = arrays[role]
        assert source is not None
        copy = _like(source, workspace[at : at + source.nbytes], plan.layout)
        at += _aligned(source.nbytes)
        if role == "grad_output":
            copy[...] = round_gradient(source, problem.rounding)
        elif role == "indices":
            copy[...] = source
        arrays[role] = copy
    result = arrays["out"]
    assert result is not None
    rest = workspace[at : at + plan.kernel_scratch]
    backend = BACKENDS[plan.backend]
    fault: IndexFault | None = backend.run(
        problem, plan.layout, arrays["grad_output"], arrays["indices"], result, rest
    )
    if result is not out:
        out[...] = result
    return fault


def _like(array: Array, buffer: Array, layout: str) -> Array:
    """An array of the same shape and dtype over `buffer`, lying as the kernel wants it."""
    flat = buffer.view(array.dtype)
    if layout != "channels_last":
        return flat.reshape(array.shape)
    n, c, d, h, w = array.shape
    return flat.reshape(n, d, h, w, c).transpose(0, 4, 1, 2, 3)
