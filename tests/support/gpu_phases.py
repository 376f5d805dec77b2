"""The enumeration on a GPU, in phases, because nearly all its time is compiling:

(a) plan the geometries, and pick some of the kernels that they need, the same ones on every run;
(b) compile each picked kernel once, into the cache on disk (kernels/cuda/runtime/code_cache.py);
(c) send all geometries through the picked kernels, which are only loaded then.

All processes plan and compile; only a few run, since each one that runs has its own context on the GPU, and the
GPU serves one context at a time. Without a GPU, (a) and (b) work as for an H200.

Another machine can compile before: `POOLTIDE_CACHE=FOLDER python tests/support/enumeration.py --gpu --compile --driver V`
fills FOLDER, if it has the same version of NVRTC; V is the version of the driver beside the GPU. Both numbers
are in the first line that the program prints on the machine with the GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from math import inf
from multiprocessing import get_context
from time import monotonic
from typing import Any

import torch

from cuda_problems import H200
from enumeration import Geometry, geometries
from gpu_paths import OnGpu, Planned, Variant, Way
from pooltide.cli.output import progress
from pooltide.kernels.cuda.choice import KERNELS
from pooltide.kernels.cuda.cost import family
from pooltide.kernels.cuda.runtime import code_cache, compiler, nvrtc
from pooltide.kernels.cuda.runtime.driver import DeviceFacts, NoCompiler, device_facts
from pooltide.kernels.cuda.source import Source

Numbered = list[tuple[int, Geometry]]
RUNNERS = 8  # processes that run kernels, at most
CHUNK = 16  # geometries that are planned at once
PLANNED, COMPILED = 0.45, 0.7  # parts of the given time after which planning and compiling end
# Kinds with few geometries give more than their share; else rare kernels would not be reached.
DENSER = {"1d": 100, "3d": 10, "adaptive_avg2d": 10, "adaptive_max2d": 10, "strided": 1}
KINDS = [f"{how}_{pool}{n}d" for how in ("strided", "adaptive") for pool in ("avg", "max") for n in (1, 2, 3)]

NAMES = list(dict.fromkeys(family(name) for kernels in KERNELS.values() for name, _ in kernels))


@dataclass
class Done:
    """What the processes did. `left`: geometries for which there was no time, or that come after a GPU's fault."""

    geometries: int = 0
    left: int = 0
    reached: Counter[tuple[Way, Variant]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Done) -> None:
        self.geometries += other.geometries
        self.left += other.left
        self.reached += other.reached
        self.wrong += other.wrong

    @property
    def missing(self) -> list[str]:
        """Kernels that no geometry reached."""
        reached = {way.kernel for way, _ in self.reached}
        return [name for name in NAMES if name not in reached]

    def table(self) -> str:
        """How often each kernel ran, and from how many different sources it was compiled."""
        lines = [f"{'kernel':32}{'runs':>9}{'channels last':>15}{'tiny limits':>13}{'compiled':>10}  dtypes"]
        for name in NAMES:
            found = {(way, v): n for (way, v), n in self.reached.items() if way.kernel == name}
            last = sum(n for (way, _), n in found.items() if way.layout == "channels_last")
            small = sum(n for (way, _), n in found.items() if way.small)
            sources = sources_in(v for _, v in found)
            dtypes = " ".join(sorted({way.dtype for way, _ in found}))
            lines.append(
                f"{name:32}{sum(found.values()):9,}{last:15,}{small:13,}{len(sources):10,}  {dtypes}"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        sources = sources_in(variant for _, variant in self.reached)
        return (
            f"{self.geometries:,} geometries, {self.reached.total():,} runs, {len(sources):,} compiled kernels"
            + (f"; {self.left:,} geometries are left out" if self.left else "")
        )


def sources_in(variants: Iterable[Variant]) -> set[Source]:
    return {source for variant in variants for source in variant}


def gpu_facts() -> DeviceFacts:
    """Of the first GPU; without one, of an H200."""
    try:
        return device_facts(0)
    except NoCompiler:
        return H200


def new_pool(processes: int, driver: int = 0) -> ProcessPoolExecutor:
    """`driver`: compile for another machine, whose driver has this version, such as 13000."""
    pool = ProcessPoolExecutor(processes, get_context("spawn"), begin_process, (driver,))
    for _ in range(processes):  # starts them all now; each takes seconds to import PyTorch
        pool.submit(int)
    return pool


def begin_process(driver: int) -> None:
    torch.set_num_threads(1)
    # These tests keep more kernels than users do, and looking at all files after each one takes long.
    code_cache._shrink = lambda where: None
    if driver:
        compiler.driver_version = nvrtc.driver_version = lambda: driver


def selection(at: int, n: int, only: str = "") -> Numbered:
    """Every n-th geometry of the largest kinds, more of the others; shuffled, so that parts are alike.

    The numbers, which choose dtype and batch, count what is selected: an n may be a multiple of 3 or 7.
    """
    found: list[Geometry] = []
    for kind in (kind for kind in KINDS if only in kind):
        share = max(n // next(dense for part, dense in DENSER.items() if part in kind), 1)
        found += (geometry for _, geometry in geometries((at % share, share), kind))
    numbered = list(enumerate(found))
    random.Random(0).shuffle(numbered)
    return numbered


def plan_part(part: Numbered, facts: DeviceFacts) -> dict[Way, set[Variant]]:
    checker = Planned(facts)
    for number, geometry in part:
        checker.check(number, geometry)
    return dict(checker.found)


def run_part(part: Numbered, facts: DeviceFacts, picked: set[Source], deadline: float, shown: bool) -> Done:
    checker, done = OnGpu(facts, picked), Done()
    with progress("run", len(part)) if shown else nullcontext(lambda: None) as advance:
        for i, (number, geometry) in enumerate(part):
            if monotonic() > deadline:
                done.left = len(part) - i
                break
            before = checker.runs
            try:
                checker.check(number, geometry)
            except Exception as error:  # after a fault on the GPU, nothing works in this process
                checker.wrong.append(f"{checker.label}: {type(error).__name__}: {error}")
                done.left = len(part) - i - 1
                break
            done.geometries += checker.runs > before
            advance()
    done.reached, done.wrong = checker.reached, checker.wrong
    return done


def pick(found: dict[Way, set[Variant]], most: int) -> list[Source]:
    """At most so many sources: for each way one variant, then a second one, and so on, by a hash."""
    ranked = [
        (rank, _hash(variant), variant)
        for variants in found.values()
        for rank, variant in enumerate(sorted(variants, key=_hash))
    ]
    picked: dict[Source, None] = {}
    for _, _, variant in sorted(ranked, key=lambda entry: entry[:2]):
        wanted = picked | dict.fromkeys(variant)
        if len(wanted) > most:
            break
        picked = wanted
    return list(picked)


@cache
def _hash(variant: Variant) -> str:
    return hashlib.sha256(repr(variant).encode()).hexdigest()


def plan_all(
    pool: Executor, numbered: Numbered, facts: DeviceFacts, deadline: float
) -> tuple[dict[Way, set[Variant]], int]:
    """What was planned in time, and how many geometries that are."""
    found: defaultdict[Way, set[Variant]] = defaultdict(set)
    chunks = [numbered[i : i + CHUNK] for i in range(0, len(numbered), CHUNK)]
    jobs, count = {pool.submit(plan_part, chunk, facts): len(chunk) for chunk in chunks}, 0
    for job in ended("plan", list(jobs), deadline):
        count += jobs[job]
        for way, variants in job.result().items():
            found[way] |= variants
    return found, count


def compile_all(
    pool: Executor, sources: Iterable[Source], capability: int, deadline: float = inf
) -> tuple[set[Source], list[str]]:
    """Those that were compiled in time, and the reasons why others can't be."""
    jobs = {pool.submit(compiler.code_for, source, capability): source for source in sources}
    compiled, wrong = set(), []
    for job in ended("compile", list(jobs), deadline):
        if error := job.exception():
            wrong.append(f"{jobs[job]}: {error}")
        else:
            compiled.add(jobs[job])
    return compiled, wrong


def ended(what: str, jobs: list[Future[Any]], deadline: float) -> Iterator[Future[Any]]:
    """Jobs as they end; those that have not begun at the deadline never will."""
    left = None if deadline == inf else max(deadline - monotonic(), 0)
    with progress(what, len(jobs)) as advance:
        try:
            for job in as_completed(jobs, left):
                advance()
                yield job
        except TimeoutError:
            for job in jobs:
                job.cancel()


def enumerate_on_gpu(
    pool: Executor,
    processes: int,
    numbered: Numbered,
    most: int,
    seconds: float = inf,
    compile_only: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Done:
    """All phases. `most` sources are compiled; no phase begins new work after its part of the `seconds`."""
    begin, facts = monotonic(), gpu_facts()

    def note(line: str) -> None:
        say(f"{monotonic() - begin:5.0f} s: {line}")

    found, count = plan_all(pool, numbered, facts, begin + PLANNED * seconds)
    sources, picked = sources_in(v for variants in found.values() for v in variants), pick(found, most)
    note(
        f"{count:,} of {len(numbered):,} geometries planned, which need {len(sources):,} kernels; {len(picked):,} are picked"
    )
    compiled, wrong = compile_all(pool, picked, facts.capability, begin + COMPILED * seconds)
    note(f"{len(compiled):,} of {len(picked):,} kernels compiled")
    done = Done(wrong=wrong)
    if not compile_only:
        runners = min(processes, RUNNERS)
        parts = [numbered[i::runners] for i in range(runners)]
        run = partial(run_part, facts=facts, picked=compiled, deadline=begin + seconds)
        for part in [pool.submit(run, part, shown=i == 0) for i, part in enumerate(parts)]:
            done.add(part.result())
        note(f"{done}")
    return done


def main(given: argparse.Namespace) -> int:
    """The exit status."""
    begin = monotonic()
    begin_process(given.driver)
    version = ".".join(map(str, nvrtc.library().version))
    print(f"NVRTC {version}, driver {compiler.driver_version()}", flush=True)
    at, n = map(int, given.share.split("/"))
    with new_pool(given.processes, given.driver) as pool:
        numbered = selection(at, n, given.only)
        left, say = given.seconds - (monotonic() - begin), partial(print, flush=True)
        done = enumerate_on_gpu(pool, given.processes, numbered, given.sources, left, given.compile, say)
    if not given.compile:
        print(done.table())
    for line in done.wrong[:20]:
        print(line)
    missing = [] if given.compile or given.only else done.missing
    if missing:
        print(f"No geometry reached {', '.join(missing)}.")
    if not given.compile:
        said = f"{len(done.wrong):,} faults" if done.wrong else "every result has the expected bits"
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "there is no GPU"
        print(f"{done}: {said} ({device})")
    return int(bool(done.wrong or missing))
