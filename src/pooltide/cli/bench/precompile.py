"""Compiles the GPU kernels of problems in several processes, before they are measured.

Most drawn problems need kernels that were not compiled before, which takes up to half a second each. The
processes store the code in the cache on disk (kernels/cuda/code_cache.py); the measuring process loads it
from there.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from ...kernels.cuda.choice import plan
from ...kernels.cuda.compiler import code_for
from ...kernels.cuda.driver import DeviceFacts
from ...kernels.cuda.source import Source
from ...problem.problem import Problem

Problems = list[tuple[Problem, str]]  # each with its layout


def precompile(problems: Problems, facts: DeviceFacts) -> None:
    """Compile, and wait. A kernel that does not compile is no error here: its launch gives the reason."""
    sources = sources_of(problems, facts)
    count = min(os.cpu_count() or 1, len(sources))
    if count == 0:
        return
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:  # a fork would copy the state of CUDA
        for job in [pool.submit(code_for, source, facts.capability) for source in sources]:
            job.exception()


def sources_of(problems: Problems, facts: DeviceFacts) -> set[Source]:
    """The kernels that kernels/cuda/launch.py launches for tensors that are aligned."""
    return {launch.source for problem, layout in problems for launch in plan(problem, layout, facts)}
