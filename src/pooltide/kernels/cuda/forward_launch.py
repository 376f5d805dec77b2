"""Forwards on tensors of a GPU: planned and compiled once per problem, then enqueued.

prepare_forward(problem, layout, device)(x, out, places)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from ...problem.problem import Problem
from .compiler import compiled
from .driver import device_facts
from .forward_plan import plan_forward

_current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)


class PreparedForward:
    """The launch of a forward on one device."""

    def __init__(self, problem: Problem, layout: str, device: int) -> None:
        launch = plan_forward(problem, layout, device_facts(device))
        where = torch.device("cuda", device)
        self.device = device
        self.kernel = launch.source.file  # for tests and tools
        self.tables = [torch.from_numpy(table).to(where) for table in launch.tables]
        self.addresses = [table.data_ptr() for table in self.tables]
        kernel = compiled(launch.source, device)
        self.run = kernel.launcher(launch.grid, launch.block, launch.shared, launch.arguments)

    def __call__(self, x: torch.Tensor, out: torch.Tensor, places: torch.Tensor | None = None) -> None:
        """Enqueues on the current stream. Tensors are 5-D, dense in the layout, and have elements.

        `places` are the int64 indices or one-byte offsets of maxima.
        """
        tensors = [x.data_ptr(), out.data_ptr(), *([] if places is None else [places.data_ptr()])]
        self.run(_current_stream(self.device), *tensors, *self.addresses)


@lru_cache(maxsize=1024)
def prepare_forward(problem: Problem, layout: str, device: int) -> PreparedForward:
    """What launches the kernel of a forward; raises NoCompiler with the reason why it can't be compiled."""
    return PreparedForward(problem, layout, device)
