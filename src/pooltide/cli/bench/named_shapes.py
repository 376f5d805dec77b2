"""`pooltide bench` of a PROBLEM, or of named shapes of real models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import click

from ...acceptance.cases import Line
from ...acceptance.notation import Case, parse
from ...acceptance.words import BY_SHORT_DTYPE
from ..output import say
from .cpu_gradients import prepare
from .cpu_timing import time_rounds
from .measurement import Measurement
from .printing import FAILURES, Failure, failure, machine_of, print_tables, record, report_failures

# Shapes of real models, and one that is hard for each kernel. {} is N, on the CPU and on a GPU
# 0: the shape is not for that device.
_SHAPES = {
    "resnet-stem": ("avg2d:{}x64x112x112:k3:s2:p1", 32, 256),
    "densenet-transition": ("avg2d:{}x256x56x56:k2:s2", 32, 256),
    "resnet-head": ("avg2d:{}x2048x7x7:k7", 32, 256),
    "inception-branch": ("avg2d:{}x192x35x35:k3:s1:p1", 16, 128),
    "video-disjoint": ("adaptive_avg3d:{}x64x16x56x56:o4x7x7", 4, 16),
    "video-overlap": ("adaptive_avg3d:{}x64x16x56x56:o5x9x9", 4, 16),
    "video-head": ("adaptive_avg3d:{}x512x4x7x7:o1x1x1", 0, 64),
    "volume": ("adaptive_avg3d:{}x32x32x64x64:o8x16x16", 2, 8),
    "max-sparse": ("adaptive_max2d:{}x256x56x56:o7x7:i64", 32, 256),
    "max-dense": ("adaptive_max2d:{}x64x112x112:o50x50:i64", 16, 128),
    "max-halved": ("adaptive_max2d:{}x512x28x28:o14x14:i64", 0, 256),
    "max-video": ("adaptive_max3d:{}x64x16x56x56:o5x9x9:i64", 4, 16),
    "max-video-dense": ("adaptive_max3d:{}x64x16x56x56:o8x28x28:i64", 0, 16),
    "resnet-pool": ("max2d:{}x64x112x112:k3:s2:p1:i64", 32, 256),
    "vgg-pool": ("max2d:{}x128x112x112:k2:s2:i64", 16, 64),
    "dilated": ("max2d:{}x64x56x56:k3:s1:p1:d2:i64", 16, 128),
    "vgg-head": ("adaptive_avg2d:{}x512x17x17:o7x7", 32, 256),
    "unet3d-pool": ("max3d:{}x32x32x64x64:k2:i64", 2, 8),
    "video-transition": ("avg3d:{}x64x16x56x56:k2:s2", 4, 16),
    "wave": ("avg1d:{}x256x4096:k3:s2:p1", 32, 256),
    "wave-max": ("max1d:{}x256x4096:k3:s2:p1:i64", 32, 256),
    "wave-head": ("adaptive_avg1d:{}x512x2048:o61", 32, 256),
    "wave-head-max": ("adaptive_max1d:{}x512x2048:o61:i64", 32, 256),
}
SHAPES = {name: case.format(n) for name, (case, n, _) in _SHAPES.items() if n}
CUDA_SHAPES = {name: case.format(n) for name, (case, _, n) in _SHAPES.items() if n}
Measure = Callable[[Case, int], Iterator[Measurement | None]]


def run_named(
    device: str,
    rounds: int,
    as_json: bool,
    kind: str,
    problems: list[Line] | None,
    shapes: tuple[str, ...],
    dtypes: str | None,
    no_compile: bool,
    channels_last: bool,
    instructions: bool,
) -> int:
    """Prints the results. Returns the exit status."""
    cuda = device == "cuda"
    named, default = (CUDA_SHAPES, "f32,bf16") if cuda else (SHAPES, "f32,bf16,f16")
    cases, errors = _cases(problems, shapes, default if dtypes is None else dtypes, named)
    if channels_last:
        cases = [(name, replace(case, channels_last=True)) for name, case in cases]
    if instructions:
        from .instruction_counts import resized, run_counts

        counted = cases if problems else [(name, resized(case)) for name, case in cases]
        return run_counts(counted, errors, kind, as_json)
    measurements = [
        measurement
        for forward in {"gradients": (False,), "forwards": (True,), "all": (False, True)}[kind]
        for measurement in _measure_all(
            cases, _measure(device, forward, not no_compile), device, rounds, errors
        )
    ]
    if as_json:
        results = {"rounds": rounds, "results": [record(*one) for one in measurements]}
        say(json.dumps(machine_of(device) | results, indent=1))
    elif measurements:
        print_tables(measurements, rounds, machine_of(device))
    return report_failures(errors)


def _measure(device: str, forward: bool, compile: bool) -> Measure:
    if forward:
        from . import forward_pools

        return partial(forward_pools.measure, device=device)
    if device == "cuda":
        from . import cuda_gradients

        return partial(cuda_gradients.measure, compile=compile)
    return lambda case, rounds: time_rounds(prepare(case), rounds)


def _measure_all(
    cases: list[tuple[str, Case]], measure: Measure, device: str, rounds: int, errors: list[Failure]
) -> list[tuple[str, Measurement]]:
    """The measurements by name. Appends to `errors` for each case without one."""
    from rich.console import Console
    from rich.progress import Progress

    from . import region_pools

    measure_regions = partial(region_pools.measure, device=device)
    measurements: list[tuple[str, Measurement]] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(cases) * (rounds + 1))
        for name, case in cases:
            progress.update(task, description=str(case))
            try:
                for one in measure_regions(case, rounds) if case.operator.regional else measure(case, rounds):
                    progress.advance(task) if one is None else measurements.append((name, one))
            except FAILURES as error:
                errors.append(failure(case, error))
    return measurements


def _cases(
    problems: list[Line] | None, shapes: tuple[str, ...], dtypes: str, named: dict[str, str]
) -> tuple[list[tuple[str, Case]], list[Failure]]:
    if problems:
        good = [(line.name, line.case) for line in problems if line.case is not None]
        return good, [Failure(line.error) for line in problems if line.case is None]
    if bad := [word for word in dtypes.split(",") if word not in ("f32", "f64", "f16", "bf16")]:
        raise click.UsageError(f"--dtype has {bad[0]!r}; it must be f32, f64, f16 or bf16, joined by commas")
    chosen = shapes or tuple(named)
    if absent := [name for name in chosen if name not in named]:
        raise click.UsageError(f"--shape {absent[0]} is not for this device; there are {', '.join(named)}")
    return [
        (name, replace(parse(named[name]), dtype=BY_SHORT_DTYPE[word]))
        for name in chosen
        for word in dtypes.split(",")
    ], []
