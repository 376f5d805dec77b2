"""`pooltide bench`: times our functions and PyTorch's, and compares both with a copy of memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import exp, log
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ..acceptance.cases import Line
from ..acceptance.inputs import TooLarge
from ..acceptance.notation import Case, parse
from ..acceptance.trial import Refused
from ..acceptance.words import BY_SHORT_DTYPE, short_dtype
from ..kernels.plan import NoBackend
from ..kernels.threads import get_num_threads, set_num_threads
from .contest import Result, Wrong
from .contest import contest as cpu_contest
from .problems import NOTATION, Problems
from .speech import one_line, say

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
LARGE = 32 << 20  # bytes of a result
Contest = Callable[[Case, int], Iterator[Result | None]]


@click.command(epilog=NOTATION)
@click.argument("problems", metavar="[PROBLEM]", type=Problems(), required=False)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=click.Choice(list(SHAPES | CUDA_SHAPES)),
    help="A named shape; repeatable.",
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where it runs."
)
@click.option("--dtype", "dtypes", help="Of the named shapes.  [default: f32,bf16,f16; on cuda f32,bf16]")
@click.option("--no-compile", is_flag=True, help="On cuda: without torch.compile, which is slow to start.")
@click.option("--channels-last", is_flag=True, help="On cuda: channels-last tensors.")
@click.option("--rounds", type=click.IntRange(3, 10_000), default=15, show_default=True)
@click.option("--threads", type=click.IntRange(1, 4096), help="Of ours and PyTorch's.  [default: ours]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def command(
    problems: list[Line] | None,
    shapes: tuple[str, ...],
    device: str,
    dtypes: str | None,
    no_compile: bool,
    channels_last: bool,
    rounds: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Time a problem, or the named shapes, and compare with PyTorch and with a copy of memory.

    A case whose result is wrong gets no time, and exit status 1.
    """
    cuda = device == "cuda"
    named, default = (CUDA_SHAPES, "f32,bf16") if cuda else (SHAPES, "f32,bf16,f16")
    if problems and (shapes or dtypes is not None):
        raise click.UsageError("--shape and --dtype are for the named shapes; a PROBLEM has its own")
    cases, errors = _cases(problems, shapes, default if dtypes is None else dtypes, named)
    contest = _cuda_contest(not no_compile, channels_last) if cuda else cpu_contest
    before = get_num_threads()
    set_num_threads(threads or before)
    try:
        found = _results(cases, contest, rounds, errors)
        machine = _machine(device)
    finally:
        set_num_threads(before)
    if as_json:
        say(json.dumps(machine | {"rounds": rounds, "results": [_record(*one) for one in found]}, indent=1))
    else:
        _tables(found, rounds, machine)
    for text in errors:
        say(one_line(text), err=True)
    raise SystemExit(1 if errors else 0)


def _results(
    cases: list[tuple[str, Case]], contest: Contest, rounds: int, errors: list[str]
) -> list[tuple[str, Result]]:
    """The results by name. Appends a message to `errors` for each case without a result."""
    found: list[tuple[str, Result]] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(cases) * (rounds + 1))
        for name, case in cases:
            progress.update(task, description=str(case))
            try:
                for result in contest(case, rounds):
                    progress.advance(task) if result is None else found.append((name, result))
            except (Wrong, Refused, TooLarge, NoBackend, MemoryError) as error:
                text = str(error) or "there was not enough memory"
                errors.append(text if text.startswith(f"{case}:") else f"{case}: {text}")
    return found


def _cuda_contest(compile: bool, channels_last: bool) -> Contest:
    try:
        import torch
    except ImportError:
        raise click.UsageError("--device cuda needs PyTorch, which is not installed") from None
    if not torch.cuda.is_available():
        raise click.UsageError("--device cuda needs an NVIDIA GPU that PyTorch sees, and there is none")
    from .cuda_contest import contest

    return partial(contest, compile=compile, channels_last=channels_last)


def _machine(device: str) -> dict[str, Any]:
    if device == "cuda":
        import torch
        import triton

        gpu = torch.cuda.get_device_name()
        return {"device": gpu, "torch": torch.__version__, "triton": triton.__version__}
    from .. import _native

    return {"device": "cpu", "threads": get_num_threads(), "instruction_set": _native.instruction_set()}


def _cases(
    problems: list[Line] | None, shapes: tuple[str, ...], dtypes: str, named: dict[str, str]
) -> tuple[list[tuple[str, Case]], list[str]]:
    if problems:
        good = [(line.name, line.case) for line in problems if line.case is not None]
        return good, [line.error for line in problems if line.case is None]
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


_RATIOS = {
    "torch ÷ ours, out=": ("torch out=", "ours out="),
    "torch ÷ ours, fresh": ("torch", "ours"),
}
_CUDA_RATIOS = {
    "compile ÷ ours": ("compile", "ours"),
    "alone: ours ÷ limit": ("ours alone", "limit"),
    "torch ÷ limit": ("torch alone", "limit"),
    "wall: ours ÷ torch": ("ours wall", "torch wall"),
}


def _record(name: str, result: Result) -> dict[str, Any]:
    return {
        "name": name,
        "case": str(result.case),
        "result_bytes": result.result_bytes,
        "limit_seconds": result.limit,
        "torch_to_limit": _to_limit(result, "torch out="),
        "others": result.others,
        "seconds": {name: result.typical(name) for name in result.times},
        "spread": {name: result.spread(name) for name in result.times},
        "ratios": {title: result.ratio(*pair) for title, pair in (_RATIOS | _CUDA_RATIOS).items()},
    }


def _tables(found: list[tuple[str, Result]], rounds: int, machine: dict[str, Any]) -> None:
    console = Console(width=None if Console().is_terminal else 150)
    about = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in machine.items())
    table = Table(title=f"medians of {rounds} rounds, {about}; ± is half the quartiles' distance")
    table.add_column("case", overflow="fold")
    ratios = _RATIOS | (_CUDA_RATIOS if machine["device"] != "cpu" else {})
    titles = ["limit ms", "ours out= ms", "±", "ours ÷ limit", "torch ÷ limit", *ratios]
    for title in titles:
        table.add_column(title, justify="right")
    for _, result in found:
        ours = result.typical("ours out=") or 0.0
        cells = [f"{result.limit * 1e3:.3f}", f"{ours * 1e3:.3f}", f"{result.spread('ours out='):.0%}"]
        cells += [_number(_to_limit(result, name)) for name in ("ours out=", "torch out=")]
        cells += [_number(result.ratio(*pair)) for pair in ratios.values()]
        table.add_row(str(result.case), *cells)
    console.print(table)
    if busy := [result.others for _, result in found if result.others is not None]:
        console.print(f"Other programs took {min(busy):.0%} to {max(busy):.0%} of the processors.")
    if len(found) > 1:
        console.print(_means([result for _, result in found]))


def _means(results: list[Result]) -> Table:
    table = Table(title=f"geometric means; large: results of {LARGE >> 20} MB and more")
    limits = ("torch ÷ limit", "ours ÷ limit, large", "torch ÷ ours, fresh, large")
    for title in ("operator", "dtype", *_RATIOS, *limits):
        table.add_column(title, justify="left" if title in ("operator", "dtype") else "right")
    kinds = dict.fromkeys((r.case.operator.short, short_dtype(r.case.dtype)) for r in results)
    for kind in kinds:
        mine = [r for r in results if (r.case.operator.short, short_dtype(r.case.dtype)) == kind]
        large = [r for r in mine if r.result_bytes >= LARGE]
        cells = [_mean([r.ratio(*pair) for r in mine]) for pair in _RATIOS.values()]
        cells.append(_mean([_to_limit(r, "torch out=") for r in mine]))
        cells.append(_mean([_to_limit(r, "ours out=") for r in large]))
        cells.append(_mean([r.ratio("torch", "ours") for r in large]))
        table.add_row(*kind, *cells)
    return table


def _to_limit(result: Result, name: str) -> float | None:
    seconds = result.typical(name)
    return seconds / result.limit if seconds and result.limit else None


def _mean(values: list[float | None]) -> str:
    present = [value for value in values if value]
    return f"{exp(sum(map(log, present)) / len(present)):.2f}" if present else "–"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
