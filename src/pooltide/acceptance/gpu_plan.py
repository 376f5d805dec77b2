"""Says which GPU kernel would compute a case, and why the kernels before it refuse it.

No GPU is needed: without one, the plan is that of an H200, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..kernels.cuda import choice
from ..kernels.cuda.regions import region_launches
from ..kernels.cuda.runtime.driver import H200, DeviceFacts, NoCompiler, device_facts
from ..kernels.plan import AnyProblem, NoBackend, arrange, fact_lines, kernel_facts
from ..problem.regions import RegionProblem
from .notation import Case
from .trial import layouts_of, problem_of

NO_LAUNCH = "none, as a tensor has no elements"


@dataclass(frozen=True, slots=True)
class GpuPlan:
    problem: AnyProblem
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
    layout, copied = arrange(problem, layouts_of(case, product, problem), choice.LAYOUTS)
    if isinstance(problem, RegionProblem):
        reason = region_launches.refuse(problem)
    else:
        reason = choice.refuse(problem, layout)
    if reason:
        raise NoBackend(f"cuda: {reason}")
    try:
        name, facts = "cuda", device_facts(0)
    except NoCompiler:
        name, facts = "cuda (there is no GPU here; this is the plan for an H200)", H200
    return GpuPlan(problem, name, layout, copied, _considered(problem, layout, facts) or [(NO_LAUNCH, None)])


def _considered(problem: AnyProblem, layout: str, facts: DeviceFacts) -> list[tuple[str, str | None]]:
    if isinstance(problem, RegionProblem):
        if problem.empty:
            return []
        return [(region_launches.launches(problem, layout)[-1].source.entry, None)]
    empty = 0 in (problem.cells, problem.planes * prod(problem.output_plane))
    return [] if empty else choice.kernels(problem, layout, facts)
