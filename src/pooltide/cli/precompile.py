"""Compiles the GPU kernels of gradients in several processes, before they are measured.

Most drawn problems need kernels that were not compiled before, which takes half a second each. Triton keeps
compiled kernels in a folder, where the measuring process finds them.

    python -m pooltide.cli.precompile    compiles the kernels of the cases that it reads, one in a line
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

from ..acceptance.notation import Case, parse

MOST_PROCESSES = 12  # each has its own context on the device, of about half a gigabyte


def precompile(cases: list[Case]) -> None:
    """Compile, and wait. A process that fails is no error: its kernels are then compiled when they run."""
    count = min(os.cpu_count() or 1, MOST_PROCESSES, len(cases))
    command = [sys.executable, "-m", "pooltide.cli.precompile"]
    running = []
    for part in range(count):
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
        )
        running.append((process, "\n".join(map(str, cases[part::count]))))
    for process, text in running:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
    for process, _ in running:
        process.wait()


def compile_kernels(cases: Iterable[Case]) -> None:
    """Compile what kernels/cuda/launch.py launches for tensors that are aligned, without tensors."""
    import torch

    from ..kernels.cuda.choice import plan
    from .aten import torch_dtype
    from .contest import timeable

    for case in cases:
        problem = timeable(case)
        dtype = torch_dtype(problem.dtype)
        launches = plan(problem, "channels_last" if case.channels_last else "planes", -1)
        types: tuple[torch.dtype, ...] = (dtype, dtype)  # grad_output, result
        if problem.index_dtype is not None:  # and indices, faults, flags
            flags = torch.int32 if launches[0].flags else torch.int64
            types = (dtype, torch.int64, dtype, torch.int64, flags)
        for launch in launches:
            how = {"grid": (launch.grid,), "num_warps": launch.warps, "enable_fp_fusion": False}
            launch.kernel.warmup(*types, *launch.tables, *launch.arguments, **how)


if __name__ == "__main__":
    compile_kernels(map(parse, sys.stdin))
