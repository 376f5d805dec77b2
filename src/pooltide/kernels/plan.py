"""From a problem to the backend and kernel that compute it, and the copies that it needs. Cached; no data.

The first backend that doesn't refuse is chosen; the others' reasons are kept. A backend works in some memory
layouts; an array in another layout is copied into scratch, and the plan says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import cached
from ..display import html_table
from ..problem.problem import Problem
from ..problem.rounding import round_source
from . import Arrays, IndexFault, cpu, reference

Array = NDArray[Any]
BACKENDS: dict[str, ModuleType] = {"cpu": cpu, "reference": reference}
ENVIRONMENT = "POOLTIDE_BACKEND"
# The dictionary inside os.environ: os.environ.get encodes the name, which takes longer than a small pool.
VARIABLES: dict[bytes, bytes] = vars(os.environ)["_data"]
BACKEND_VARIABLE = ENVIRONMENT.encode()
_ALIGN = 64


class NoBackend(RuntimeError):
    """Every backend refused; the text has each one's reason."""


@dataclass(frozen=True, slots=True)
class Plan:
    problem: Problem
    backend: str
    layout: str  # what the kernel works in: planes | channels_last | strided
    copied: tuple[str, ...]  # the arrays, by their names in kernels.Arrays, that go through scratch
    refused: tuple[tuple[str, str], ...]  # backends before the chosen one, and their reasons
    kernel_scratch: int
    work: int = field(default=0, repr=False)  # about the time of a call, in bytes that memory moves

    @property
    def scratch(self) -> int:
        """Bytes of workspace: the copies, then what the kernel itself needs."""
        copies = sum(_aligned(_bytes(self.problem, role)) for role in self.copied)
        return copies + self.kernel_scratch

    @property
    def kernels(self) -> list[tuple[str, str | None]]:
        """The backend's kernels up to the chosen one, each with the reason against it; None: it is chosen."""
        kernels = getattr(BACKENDS[self.backend], "kernels", None)
        found: list[tuple[str, str | None]] = kernels(self.problem, self.layout) if kernels else []
        return found

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("problem", str(self.problem)), ("backend", f"{self.backend}, working on {self.layout}")]
        facts += [("refused", f"{name}: {reason}") for name, reason in self.refused]
        facts += kernel_facts(self.kernels)
        facts += [("copied", role) for role in self.copied]
        return [*facts, ("scratch", f"{self.scratch} bytes")]

    def __str__(self) -> str:
        return fact_lines(self._facts())

    def _repr_html_(self) -> str:
        return html_table(self._facts())


def kernel_facts(kernels: list[tuple[str, str | None]]) -> list[tuple[str, str]]:
    """The chosen kernel, then the others with the reasons against them."""
    chosen = [("kernel", name) for name, reason in kernels if reason is None]
    return chosen + [("not", f"{name}: {reason}") for name, reason in kernels if reason is not None]


def fact_lines(facts: list[tuple[str, str]]) -> str:
    return "\n".join(f"{name:7}  {text}" for name, text in facts)


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> str:
    """The layout of a 5-D (N, C, D, H, W) array: planes, channels_last or strided; strides count elements."""
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


def backend_setting() -> bytes | None:
    """Returns the value of the environment variable that chooses the backend, or None."""
    return VARIABLES.get(BACKEND_VARIABLE)


def make_plan(problem: Problem, layouts: tuple[str, ...], only: str | None = None) -> Plan:
    """The plan for arrays in these layouts, in the order of `roles`; `only` names the one backend to use."""
    return _planned(problem, layouts, only or os.fsdecode(backend_setting() or b"") or None)


def roles(problem: Problem) -> tuple[str, ...]:
    """The arrays of a problem, by their names in kernels.Arrays: those read, then the result."""
    found = ["grad_output" if problem.gradient else "input"]
    if problem.index_bytes:
        found.append("indices")
    return (*found, "out")


def written(problem: Problem) -> tuple[str, ...]:
    """The arrays that a problem writes."""
    return ("indices", "out") if problem.kind == "maximum" and problem.index_bytes else ("out",)


@cached()
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
        work = _work(problem) * (1 if name == "cpu" else 1 << 10)  # the reference is slow
        return Plan(problem, name, layout, copied, tuple(refused), backend.scratch(problem), work)
    raise NoBackend("; ".join(f"{name}: {reason}" for name, reason in refused))


def _work(problem: Problem) -> int:
    """The bytes that must move, or the cells of all windows if these are more."""
    longest = [axis.k or axis.length // max(axis.outputs, 1) + 2 for axis in problem.axes]
    return max(problem.least_bytes, problem.planes * prod(problem.output_plane) * prod(longest))


def shortcut(plan: Plan) -> Callable[..., Any] | None:
    """Returns the compiled kernel of a plan, which callers may call directly, or None.

    None if the backend is not `cpu`, if an array must be copied, and for unpools. The kernel takes
    (grad_output, input, indices, out, threads), with None for arrays that the problem does not have.
    It returns None for success, a tuple for an index outside its plane, and NotImplemented for arrays that
    it can't take; then it has written nothing.
    """
    if plan.backend != "cpu" or plan.copied or plan.problem.unpool:
        return None
    return cpu.prepare(plan.problem, plan.layout).run


def arrange(problem: Problem, layouts: tuple[str, ...], able: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The layout to work in, and the arrays that must be copied into it."""
    if "strided" in able:
        layout = layouts[0] if len(set(layouts)) == 1 else "strided"
        copied: list[str] = []
    else:
        layout = layouts[-1] if layouts[-1] in able else "planes"
        both = _dense_both_ways(problem)
        copied = [
            role
            for role, found in zip(roles(problem), layouts, strict=True)
            if found != layout and (found == "strided" or role not in both)
        ]
    source = roles(problem)[0]
    if problem.rounding != "keep" and source not in copied:
        copied.insert(0, source)
    return layout, tuple(copied)


def _dense_both_ways(problem: Problem) -> set[str]:
    """The arrays that are planes and channels-last at once: of one channel, or of one cell per plane."""
    return {role for role in roles(problem) if prod(_plane(problem, role)) == 1 or problem.batch[1] == 1}


def _plane(problem: Problem, role: str) -> tuple[int, int, int]:
    """The spatial shape of an array."""
    cells = "out" if problem.gradient else "input"  # the array with a plane of cells
    if problem.unpool:
        cells = "grad_output" if problem.gradient else "out"
    return problem.input_plane if role == cells else problem.output_plane


def _bytes(problem: Problem, role: str) -> int:
    itemsize = problem.index_bytes if role == "indices" else problem.dtype.itemsize
    return problem.planes * prod(_plane(problem, role)) * itemsize


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def execute(plan: Plan, arrays: Arrays, workspace: Array | None = None) -> IndexFault | None:
    """Compute. Arrays are 5-D in the layouts of the plan; `workspace` has plan.scratch bytes."""
    problem = plan.problem
    if workspace is None:
        workspace = np.empty(plan.scratch, dtype=np.uint8)
    at, copies = 0, {}
    for role in plan.copied:
        source = getattr(arrays, role)
        copy = copies[role] = _like(source, workspace[at : at + source.nbytes], plan.layout)
        at += _aligned(source.nbytes)
        if role == roles(problem)[0]:
            copy[...] = round_source(source, problem.rounding)
        elif role not in written(problem):
            copy[...] = source
    rest = workspace[at : at + plan.kernel_scratch]
    fault: IndexFault | None = BACKENDS[plan.backend].run(
        problem, plan.layout, replace(arrays, **copies), rest
    )
    for role in copies.keys() & set(written(problem)):
        getattr(arrays, role)[...] = copies[role]
    return fault


def _like(array: Array, buffer: Array, layout: str) -> Array:
    """An array of the same shape and dtype over `buffer`, in the kernel's layout."""
    flat = buffer.view(array.dtype)
    if layout != "channels_last":
        return flat.reshape(array.shape)
    n, c, d, h, w = array.shape
    return flat.reshape(n, d, h, w, c).transpose(0, 4, 1, 2, 3)
