"""`pooltide run --plan --device cuda`: which GPU kernel would compute a case, and why not the others.

It needs no GPU: where there is none, the plan is that of an H200, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..acceptance.notation import Case
from ..acceptance.trial import layouts_of, problem_of
from ..kernels.cuda.choice import LAYOUTS, kernels, refuse
from ..kernels.cuda.driver import DeviceFacts, NoCompiler, device_facts
from ..kernels.plan import NoBackend, arrange, fact_lines, kernel_facts
from ..problem.problem import Problem

H200 = DeviceFacts(90, 132, 227 << 10, 228 << 10, 2048, 65536, 50 << 20, 1_980_000)


@dataclass(frozen=True, slots=True)
class GpuPlan:
    problem: Problem
    backend: str
    layout: str
    copied: tuple[str, ...]
    kernels: list[tuple[str, str | None]]  # up to the chosen one, each with the reason against it
    refused: tuple[tuple[str, str], ...] = ()
    scratch: int = 0  # tensors that are copied are allocated by PyTorch

    def __str__(self) -> str:
        facts = [("problem", str(self.problem)), ("backend", f"{self.backend}, working on {self.layout}")]
        return fact_lines([*facts, *kernel_facts(self.kernels), *(("copied", role) for role in self.copied)])


def gpu_plan(case: Case, product: str | None = None) -> GpuPlan:
    """The plan of a case on the first GPU, or on an H200; raises NoBackend with the reason if it has none."""
    problem = problem_of(case, product)
    layout, copied = arrange(problem, layouts_of(case, product, problem), LAYOUTS)
    if reason := refuse(problem, layout):
        raise NoBackend(f"cuda: {reason}")
    try:
        name, facts = "cuda", device_facts(0)
    except NoCompiler:
        name, facts = "cuda (there is no GPU here; this is the plan for an H200)", H200
    return GpuPlan(problem, name, layout, copied, kernels(problem, layout, facts))
