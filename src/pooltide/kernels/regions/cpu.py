"""The compiled kernels of pools over regions of interest (native/regions/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...problem.regions import RegionProblem
from .. import Arrays
from ..cpu import BUILT, STORES
from ..threads import get_num_threads
from . import RegionFault

if BUILT:
    from ... import _native

LAYOUTS = frozenset({"planes", "channels_last"})
KINDS = {"roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"}


def refuse(problem: RegionProblem, layout: str = "planes") -> str | None:
    if not BUILT:
        return "the extension pooltide._native is not built here; pip install . builds it"
    if problem.dtype.name not in STORES:
        return f"it has no kernel for {problem.dtype}"
    if problem.kind.removesuffix("_gradient") not in KINDS:
        return f"it has no kernel for {problem.kind}"
    return None


def scratch(problem: RegionProblem) -> int:
    """Returns 0: each thread allocates a scratch buffer of its own, of some rows or planes of 16 channels."""
    return 0


def run(problem: RegionProblem, layout: str, arrays: Arrays, scratch: Any) -> RegionFault | None:
    kernel, threads, a = prepare(problem, layout).run, get_num_threads(), arrays
    fault = kernel(a.grad_output, a.input, a.boxes, a.indices, a.out, threads)
    if fault is NotImplemented:  # an array is misaligned, or the result shares memory: work on copies
        grad, x, boxes, at, out = (
            None if each is None else each.copy("K")
            for each in (a.grad_output, a.input, a.boxes, a.indices, a.out)
        )
        fault = kernel(grad, x, boxes, at, out, threads)
        a.out[...] = out
        if "indices" in problem.results:
            a.indices[...] = at
    assert fault is None or isinstance(fault, tuple), "copies are aligned and share no memory"
    return None if fault is None else RegionFault(*fault)


@dataclass(frozen=True, slots=True)
class _Regions:
    problem: RegionProblem
    channels_last: bool
    nbytes: int = 0  # it has no tables: boxes are data

    def run(self, grad_output: Any, input: Any, boxes: Any, indices: Any, out: Any, threads: int) -> Any:
        problem = self.problem
        return _native.regions(
            grad_output if problem.gradient else input,
            boxes,
            indices,
            out,
            problem.sampled,
            problem.position_sensitive,
            problem.gradient,
            STORES[problem.dtype.name],
            self.channels_last,
            problem.itemsize("indices") if problem.index_dtype else 0,
            problem.batch + problem.plane,
            problem.regions,
            problem.bins,
            problem.spatial_scale,
            problem.sampling_ratio,
            problem.aligned,
            threads,
        )


def prepare(problem: RegionProblem, layout: str, device: None = None) -> _Regions:
    return _Regions(problem, layout == "channels_last")


def kernels(problem: RegionProblem, layout: str, device: None = None) -> list[tuple[str, str | None]]:
    return [("regions", None)]
