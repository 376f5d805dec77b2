"""The compiled kernels of pools over regions of interest (native/regions/)."""

from __future__ import annotations

from typing import Any

from ...problem.regions import RegionProblem
from .. import Arrays
from . import RegionFault

LAYOUTS = frozenset({"planes", "channels_last"})


def refuse(problem: RegionProblem, layout: str) -> str | None:
    return "it has no kernel for it yet"


def prepare(problem: RegionProblem, layout: str, device: None = None) -> Any:
    raise NotImplementedError


def scratch(problem: RegionProblem) -> int:
    return 0


def run(problem: RegionProblem, layout: str, arrays: Arrays, scratch: Any) -> RegionFault | None:
    raise NotImplementedError
