"""The GPU backend of pools over regions of interest.

    LAYOUTS, refuse, prepare, scratch, run      as of every backend (kernels/regions/); `run` takes tensors

The programs take all sizes as arguments, so wheels bring them compiled; else a first call waits for the
compiler. Regions of no image, and indices outside the plane, are counted with the indices of other pools
(`index_errors`).
"""

from __future__ import annotations

from types import NotImplementedType
from typing import Any

import torch

from ....cache import cached
from ....problem.regions import RegionProblem
from ... import Arrays
from ..launch import check_compiler as check_compiler
from ..launch import current_device, current_stream, record
from ..runtime.compiler import compiled
from .region_launches import CHANNELS, launches
from .region_launches import refuse as _refuse

LAYOUTS = frozenset({"planes", "channels_last"})
_VECTOR = 16  # bytes


def refuse(problem: RegionProblem, layout: str) -> str | None:
    return _refuse(problem)


def scratch(problem: RegionProblem) -> int:
    """Returns 0: PyTorch allocates what a kernel needs."""
    return 0


def kernels(problem: RegionProblem, layout: str, device: int) -> list[tuple[str, str | None]]:
    """The kernels that were considered, each with the reason against it; None: it is chosen."""
    return [(launches(problem, layout)[-1].source.entry, None)]


class PreparedRegions:
    """The launches of a problem on one device. Tensors are contiguous in the layout, and have elements."""

    nbytes = 0  # there are no tables

    def __init__(self, problem: RegionProblem, layout: str, device: int) -> None:
        self.problem, self.layout, self.device = problem, layout, device
        self.faults = record(device).data_ptr()
        self.stride = -(-problem.channels // CHANNELS) * CHANNELS
        # Whether the channels of grad_output are innermost, in whole vectors.
        self.vectors = problem.gradient and layout == "channels_last" and problem.channels % CHANNELS == 0
        self.launches: dict[bool, list[tuple[Any, tuple[str, ...]]]] = {}
        self._loaded(self.vectors)

    def _loaded(self, direct: bool) -> list[tuple[Any, tuple[str, ...]]]:
        """The launches with the names of their arrays."""
        if direct not in self.launches:
            loaded = []
            for launch in launches(self.problem, self.layout, direct):
                kernel = compiled(launch.source, self.device)
                run = kernel.launcher(launch.grid, launch.block, launch.shared, launch.arguments)
                pointers = launch.source.parameters[: launch.source.pointers]
                loaded.append((run, tuple(name for _, name in pointers)))
            self.launches[direct] = loaded
        return self.launches[direct]

    def run(
        self,
        grad_output: int | None,
        input: int | None,
        boxes: int,
        indices: int | None,
        out: int,
        threads: int = 0,
    ) -> NotImplementedType | None:
        """Takes addresses; enqueues on the current stream of the device."""
        problem = self.problem
        source = (input if grad_output is None else grad_output) or 0
        if (source | out) % problem.dtype.itemsize or (indices or 0) % 4 or boxes % problem.itemsize("boxes"):
            return NotImplemented  # type: ignore[no-any-return]
        if self.device == current_device():
            self._enqueue(source, boxes, indices or 0, out)
        else:
            with torch.cuda.device(self.device):
                self._enqueue(source, boxes, indices or 0, out)
        return None

    def _enqueue(self, source: int, boxes: int, indices: int, out: int) -> None:
        problem, stream = self.problem, current_stream(self.device)
        at = {
            "boxes": boxes,
            "x": source,
            "grad": source,
            "indices": indices,
            "out": out,
            "faults": self.faults,
        }
        direct = self.vectors and source % _VECTOR == 0
        if problem.gradient:
            reaches = self._scratch(problem.regions * 5 * 4)
            at["reaches"], at["moved"] = reaches.data_ptr(), 0
            if not (direct or problem.index_dtype):
                k, _, ph, pw = problem.shape("grad_output")
                moved = self._scratch(k * ph * pw * self.stride * problem.dtype.itemsize)
                at["moved"] = moved.data_ptr()
        for run, names in self._loaded(direct):
            run(stream, *(at[name] for name in names))
            at["grad"] = at.get("moved") or source  # what the second launch reads

    def _scratch(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=torch.device("cuda", self.device))


@cached(lambda prepared: (prepared,))
def prepare(problem: RegionProblem, layout: str, device: int) -> PreparedRegions:
    """What launches a problem's kernels; raises NoCompiler with the reason why they can't be compiled."""
    return PreparedRegions(problem, layout, device)


def run(problem: RegionProblem, layout: str, arrays: Arrays, scratch: None = None) -> None:
    """Writes every cell of `out`, and a maximum's `indices`.

    The arrays are tensors, dense in `layout`, on one GPU.
    """
    a = arrays
    if a.out.numel() == 0:
        return
    if problem.empty:
        a.out.zero_()
        return
    grad, x, indices = (None if t is None else t.data_ptr() for t in (a.grad_output, a.input, a.indices))
    prepare(problem, layout, a.out.get_device()).run(grad, x, a.boxes.data_ptr(), indices, a.out.data_ptr())
