"""Compiles the GPU kernels of problems in several processes, before they are measured.

Most drawn problems need kernels that were not compiled before, which takes up to half a second each. The
processes store the code in the cache on disk (kernels/cuda/runtime/code_cache.py); the measuring one loads
it from there.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from ...kernels.cuda.choice import candidates, plan
from ...kernels.cuda.runtime.compiler import code_for
from ...kernels.cuda.runtime.driver import DeviceFacts
from ...kernels.cuda.source import Source
from ...problem.problem import Problem

Problems = list[tuple[Problem, str]]  # each with its layout


def precompile(problems: Problems, facts: DeviceFacts, all_candidates: bool = False, tiles: int = 0) -> None:
    """Compile, and wait. A kernel that does not compile is no error here: its launch gives the reason.

    `all_candidates`: every kernel that can compute a problem, not only the chosen one, with so many tiles.
    """
    sources = sources_of(problems, facts, all_candidates, tiles)
    count = min(os.cpu_count() or 1, len(sources))
    if count == 0:
        return
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:  # a fork would copy the state of CUDA
        for job in [pool.submit(code_for, source, facts.capability) for source in sources]:
            job.exception()


def sources_of(
    problems: Problems, facts: DeviceFacts, all_candidates: bool = False, tiles: int = 0
) -> set[Source]:
    """The kernels that kernels/cuda/launch.py launches for tensors that are aligned."""
    if not all_candidates:
        return {launch.source for problem, layout in problems for launch in plan(problem, layout, facts)}
    planned = (candidates(problem, layout, facts, tiles=tiles) for problem, layout in problems)
    return {launch.source for kernels in planned for _, launches in kernels for launch in launches}
