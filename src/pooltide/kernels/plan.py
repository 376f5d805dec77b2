"""From a problem to what computes it on a device, and the copies that it needs. Cached; no data.

The first backend that doesn't refuse is chosen; the others' reasons are kept. A backend works in some memory
layouts; an array in another layout is copied into scratch, and the executable says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import cached
from ..display import html_table
from ..problem.problem import Problem
from ..problem.regions import RegionProblem
from ..problem.rounding import round_source
from . import Arrays, IndexFault, Kernel, Prepared, cpu, reference
from .cuda.runtime.driver import NoCompiler
from .regions import cpu as regions_cpu
from .regions import reference as regions_reference

Array = NDArray[Any]
AnyProblem = Problem | RegionProblem
BACKENDS: dict[str, ModuleType] = {"cpu": cpu, "reference": reference}
REGION_BACKENDS: dict[str, ModuleType] = {"cpu": regions_cpu, "reference": regions_reference}
ENVIRONMENT = "POOLTIDE_BACKEND"
# The dictionary inside os.environ: os.environ.get encodes the name, which takes longer than a small pool.
VARIABLES: dict[bytes, bytes] = vars(os.environ)["_data"]
BACKEND_VARIABLE = ENVIRONMENT.encode()
_ALIGN = 64


class NoBackend(RuntimeError):
    """Every backend refused; the text has each one's reason."""


@dataclass(frozen=True, slots=True)
class Executable:
    """A problem that is ready to run on a device, on arrays in the layouts that it was planned for."""

    problem: AnyProblem
    device: int | None  # the number of a GPU; None: the host
    backend: str
    layout: str  # what the kernel works in: planes | channels_last | strided
    copied: tuple[str, ...]  # the arrays, by their names in kernels.Arrays, that go through scratch
    refused: tuple[tuple[str, str], ...]  # backends before the chosen one, and their reasons
    kernel_scratch: int
    work: int = field(repr=False)  # about the time of a call, in bytes that memory moves
    # What has the kernel; None if no kernel takes addresses, or a GPU has nothing to compute.
    prepared: Prepared | None = field(repr=False, compare=False)

    @property
    def scratch(self) -> int:
        """Bytes of workspace: the copies, then what the kernel itself needs."""
        copies = sum(_aligned(_bytes(self.problem, role)) for role in self.copied)
        return copies + self.kernel_scratch

    @property
    def _module(self) -> ModuleType:
        return _backends(self.problem, self.device)[self.backend]

    @property
    def kernel(self) -> Kernel | None:
        """The kernel, if callers may call it on their arrays as they are: nothing must be copied."""
        return None if self.copied or self.prepared is None else self.prepared.run

    @property
    def kernels(self) -> list[tuple[str, str | None]]:
        """The backend's kernels up to the chosen one, each with the reason against it; None: it is chosen."""
        kernels = getattr(self._module, "kernels", None)
        listed: list[tuple[str, str | None]] = []
        return kernels(self.problem, self.layout, self.device) if kernels else listed

    def run(self, arrays: Arrays, workspace: Array | None = None) -> IndexFault | None:
        """Computes on arrays of the host, of the problem's shapes, in the planned layouts.

        `workspace` has `scratch` bytes.
        """
        problem = self.problem
        if workspace is None:
            workspace = np.empty(self.scratch, dtype=np.uint8)
        begin, copies = 0, {}
        for role in self.copied:
            source = getattr(arrays, role)
            copy = copies[role] = _like(source, workspace[begin : begin + source.nbytes], self.layout)
            begin += _aligned(source.nbytes)
            if role == problem.roles[0]:
                copy[...] = round_source(source, problem.rounding)
            elif role not in problem.results:
                copy[...] = source
        scratch = workspace[begin : begin + self.kernel_scratch]
        fault: IndexFault | None = self._module.run(problem, self.layout, replace(arrays, **copies), scratch)
        for role in copies.keys() & set(problem.results):
            getattr(arrays, role)[...] = copies[role]
        return fault

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


def layout_of(shape: Sequence[int], strides: Sequence[int], axes: int = 3) -> str:
    """planes, channels_last or strided: the layout of an array (N,) C, spatial axes; strides in elements."""
    spatial = len(shape) - axes
    if 0 in shape or _dense(shape, strides, range(len(shape))):
        return "planes"
    channels_innermost = (*range(spatial - 1), *range(spatial, len(shape)), spatial - 1)
    return "channels_last" if _dense(shape, strides, channels_innermost) else "strided"


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


def plan(
    problem: AnyProblem, layouts: tuple[str, ...], device: int | None = None, only: str | None = None
) -> Executable:
    """What computes a problem on a device, for arrays in these layouts, in the order of `problem.roles`.

    `device`: the number of a GPU; None: the host. `only`: the name of the one backend to use.
    """
    if device is None and only is None:
        only = os.fsdecode(backend_setting() or b"") or None
    return _planned(problem, layouts, device, only)


@cache
def gpu_backend(regional: bool = False) -> ModuleType | str:
    """The module of GPU kernels, or the reason why they can't be compiled here.

    `regional`: the kernels of pools over regions of interest.
    """
    try:
        backend = import_module(f"pooltide.kernels.cuda{'.regions' if regional else ''}.launch")
        backend.check_compiler()
    except (ImportError, NoCompiler) as missing:
        return f"there are no CUDA kernels: {missing}"
    return backend


def _backends(problem: AnyProblem, device: int | None) -> Mapping[str, ModuleType]:
    regional = isinstance(problem, RegionProblem)
    if device is None:
        return REGION_BACKENDS if regional else BACKENDS
    backend = gpu_backend(True) if regional else gpu_backend()
    if isinstance(backend, str):
        raise NoBackend(backend)
    return {"cuda": backend}


@cached(lambda executable: (executable.prepared,))
def _planned(
    problem: AnyProblem, layouts: tuple[str, ...], device: int | None, only: str | None
) -> Executable:
    refused: list[tuple[str, str]] = []
    backends = _backends(problem, device)
    if only is not None and only not in backends:
        raise NoBackend(f"backend {only!r} is unknown; known are {', '.join(backends)}")
    for name in (only,) if only else backends:
        backend = backends[name]
        layout, copied = arrange(problem, layouts, backend.LAYOUTS)
        if reason := backend.refuse(problem, layout):
            refused.append((name, reason))
            continue
        try:
            nothing = device is not None and problem.empty
            prepared = None if nothing else backend.prepare(problem, layout, device)
        except NoCompiler as missing:
            refused.append((name, str(missing)))
            continue
        work = problem.work * (1 << 10 if name == "reference" else 1)  # the reference is slow
        scratch = backend.scratch(problem)
        return Executable(problem, device, name, layout, copied, tuple(refused), scratch, work, prepared)
    raise NoBackend("; ".join(f"{name}: {reason}" for name, reason in refused))


def arrange(
    problem: AnyProblem, layouts: tuple[str, ...], able: frozenset[str]
) -> tuple[str, tuple[str, ...]]:
    """The layout to work in, and the arrays that must be copied into it."""
    if "strided" in able:
        layout = layouts[0] if len(set(layouts)) == 1 else "strided"
        copied: list[str] = []
    else:
        layout = layouts[-1] if layouts[-1] in able else "planes"
        copied = [
            role
            for role, its_layout in zip(problem.roles, layouts, strict=True)
            if its_layout != layout and (its_layout == "strided" or not _dense_both_ways(problem, role))
        ]
    source = problem.roles[0]
    if problem.rounding != "keep" and source not in copied:
        copied.insert(0, source)
    return layout, tuple(copied)


def _dense_both_ways(problem: AnyProblem, role: str) -> bool:
    """Whether an array is planes and channels-last at once: of one channel, or of one cell per plane."""
    _, channels, *plane = problem.shape(role)
    return channels == 1 or prod(plane) == 1


def _bytes(problem: AnyProblem, role: str) -> int:
    return prod(problem.shape(role)) * problem.itemsize(role)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _like(array: Array, buffer: Array, layout: str) -> Array:
    """An array of the same shape and dtype over `buffer`, in the kernel's layout."""
    flat = buffer.view(array.dtype)
    if layout != "channels_last":
        return flat.reshape(array.shape)
    n, c, *plane = array.shape
    return np.moveaxis(flat.reshape(n, *plane, c), -1, 1)
