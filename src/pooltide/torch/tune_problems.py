"""`tune()`: measures the GPU kernels of the problems of this process, and keeps the fastest."""

from __future__ import annotations

from dataclasses import dataclass

from .gpu import gpu_backend


@dataclass(frozen=True, slots=True)
class Tuned:
    """What `tune()` found for one problem."""

    problem: str
    layout: str
    before: str  # the kernel that pooltide chooses by itself
    now: str  # the fastest kernel, which is used from now on
    gain: float  # time of the first ÷ time of the second


def tune() -> list[Tuned]:
    """Measures every GPU kernel that can compute the problems of the calls so far, and uses the fastest.

    Call it after a training step, outside of CUDA graphs: it compiles kernels, draws tensors of the sizes of
    these calls on the device, and waits. It never runs by itself. The fastest kernels are kept beside the
    compiled code, for this kind of GPU, so later processes use them, too. All kernels give the same bits, so
    no result changes. Returns what it found for each problem; nothing where no call ran on a GPU.
    """
    if gpu_backend() is None:
        return []
    from ..kernels.cuda.tuning import tune_prepared

    return [
        Tuned(str(task.problem), task.layout, measured.chosen, measured.fastest, measured.regret)
        for task, measured in tune_prepared()
    ]
