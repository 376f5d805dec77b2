"""The command `bench`: its options, which of them exclude each other, and what it then runs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import click

from ...kernels.threads import MOST, get_num_threads
from ..arguments import NOTATION, GradientProblems
from ..output import say
from .cpu_timing import use_threads
from .named_shapes import CUDA_SHAPES, SHAPES, run_named
from .sampling import CELLS, KINDS, MIN_CELLS, Sampling

# The options that only one of the modes has.
_NAMED = {
    "shapes": "--shape",
    "dtypes": "--dtype",
    "no_compile": "--no-compile",
    "channels_last": "--channels-last",
    "instructions": "--instructions",
}
_DRAWN = {"seed": "--seed", "most_cells": "--most-cells"}  # also of --regret
_MODELS = {"scale": "--scale", "compiled": "--compile"}


class Threads(click.ParamType):  # type: ignore[type-arg]
    """Numbers of threads, joined by commas."""

    name = "1,2,all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = value.split(",")
        counts = [get_num_threads() if w == "all" else int(w) if w.isdecimal() else 0 for w in words]
        if bad := [word for word, n in zip(words, counts, strict=True) if not 1 <= n <= MOST]:
            self.fail(f"it has {bad[0]!r}; it must be numbers from 1 to {MOST}, or all, joined by commas")
        return tuple(dict.fromkeys(counts))


@click.command(epilog=NOTATION)
@click.argument("problems", metavar="[PROBLEM]", type=GradientProblems(), required=False)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=click.Choice(list(SHAPES | CUDA_SHAPES)),
    metavar="NAME",
    help=f"A named shape; repeatable: {', '.join(SHAPES | CUDA_SHAPES)}.",
)
@click.option("--drawn", type=click.IntRange(1, 100_000), metavar="N", help="Measure N drawn problems.")
@click.option(
    "--regret",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="On cuda: time all kernels that can compute each of N drawn problems, not only the chosen one.",
)
@click.option("--seed", type=click.IntRange(0), help="Of the drawn problems.  [default: 1]")
@click.option(
    "--most-cells",
    type=click.IntRange(MIN_CELLS, 1 << 30),
    help="Of the drawn problems.  [default: 2^23; on cuda 2^26]",
)
@click.option(
    "--models",
    is_flag=False,
    flag_value="all",
    metavar="[NAME,…]",
    help="Measure training steps of whole networks: all, or those with these names.",
)
@click.option(
    "--scale", type=click.FloatRange(0, 1), help="Of --models: of the sides of images.  [default: 1]"
)
@click.option(
    "--compile",
    "compiled",
    type=click.Choice(["default", "reduce-overhead", "dynamic"]),
    help="Of --models: by torch.compile in this mode.",
)
@click.option("--kind", type=click.Choice(KINDS), help="What is measured.  [default: gradients]")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where it runs."
)
@click.option("--dtype", "dtypes", help="Of the named shapes.  [default: f32,bf16,f16; on cuda f32,bf16]")
@click.option("--no-compile", is_flag=True, help="On cuda: without torch.compile, which is slow to start.")
@click.option("--channels-last", is_flag=True, help="The problems in the layout channels-last.")
@click.option("--instructions", is_flag=True, help="Count instructions and bytes by valgrind; no times.")
@click.option("--rounds", type=click.IntRange(3, 10_000), help="[default: 15; drawn problems and models 5]")
@click.option(
    "--threads", type=Threads(), help="Of ours and PyTorch's; several for drawn problems.  [default: all]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def command(models: str | None, device: str, threads: tuple[int, ...] | None, **options: Any) -> None:
    """Time a problem, the named shapes, drawn problems or models; compare with PyTorch and with a copy.

    A case whose result is wrong gets no time, and exit status 1.
    """
    if options["instructions"]:
        _check_counting(device, threads, options)
    counts = _checked(models, device, threads or (get_num_threads(),), options)
    if find_spec("torch") is None:
        say("PyTorch is not installed, so its figures are missing: pip install 'pooltide[torch]'.", err=True)
    before = get_num_threads()
    use_threads(counts[0])
    rounds, as_json, kind = options["rounds"], options["as_json"], options["kind"] or "gradients"
    try:
        if models:
            status = _run_models(models, device, rounds or 5, as_json, options)
        elif count := options["drawn"] or options["regret"]:
            from .drawn_problems import run_drawn

            seed = 1 if options["seed"] is None else options["seed"]
            sampling = Sampling(count, seed, kind, device, options["most_cells"] or CELLS[device])
            if options["regret"]:
                from .regret import run_regret

                status = run_regret(sampling, rounds or 7, as_json)
            else:
                status = run_drawn(sampling, counts, rounds or 5, as_json)
        else:
            named = {name: options[name] for name in (*_NAMED, "problems")}
            status = run_named(device, rounds or 15, as_json, kind, **named)
    finally:
        use_threads(before)
    raise SystemExit(status)


def _run_models(names: str, device: str, rounds: int, as_json: bool, options: dict[str, Any]) -> int:
    from .model_training import Setting, run_models
    from .networks import NETWORKS

    chosen = list(NETWORKS) if names == "all" else names.split(",")
    if unknown := [name for name in chosen if name not in NETWORKS]:
        text = f"--models has {unknown[0]!r}; it must be names of {', '.join(NETWORKS)}, joined by commas"
        raise click.UsageError(text)
    setting = Setting(device, options["scale"] or 1.0, options["compiled"], rounds)
    return run_models(chosen, setting, as_json)


def _checked(
    models: str | None, device: str, threads: tuple[int, ...], options: dict[str, Any]
) -> tuple[int, ...]:
    """Returns the numbers of threads. Raises for options that exclude each other."""
    if options["problems"] and (options["shapes"] or options["dtypes"] is not None):
        raise click.UsageError("--shape and --dtype are for the named shapes; a PROBLEM has its own")
    modes = {"--drawn": options["drawn"], "--regret": options["regret"], "--models": models}
    mode, *others = [name for name, chosen in modes.items() if chosen] or [""]
    if others:
        raise click.UsageError(f"{mode} and {others[0]} exclude each other; give one of them")
    if mode == "--regret" and device != "cuda":
        raise click.UsageError("--regret times the kernels of a GPU; it needs --device cuda")
    if options["kind"] == "regions" and mode != "--drawn":
        raise click.UsageError("--kind regions is for --drawn; a PROBLEM says what it is by itself")
    sampled = mode in ("--drawn", "--regret")
    foreign = ({"problems": "PROBLEM"} | _NAMED if mode else {}) | ({} if sampled else _DRAWN)
    foreign |= {"kind": "--kind"} if models else _MODELS
    for name, option in foreign.items():
        if not (options[name] is None or options[name] is False or options[name] == ()):
            raise click.UsageError(f"{option} is not for {mode or 'a PROBLEM and the named shapes'}")
    if len(threads) > 1 and (mode != "--drawn" or device == "cuda"):
        raise click.UsageError(
            f"--threads has {len(threads)} numbers; it must be one, except for --drawn on the CPU"
        )
    need_torch = {
        "--device cuda": device == "cuda",
        "--models": bool(models),
        "--kind": options["kind"] in ("forwards", "all"),
    }
    for option in (option for option, chosen in need_torch.items() if chosen):
        _check_torch(option, device)
    return threads


def _check_counting(device: str, threads: tuple[int, ...] | None, options: dict[str, Any]) -> None:
    """Raises for options that --instructions does not have: it counts one call, on one thread of the CPU."""
    excluded = {
        "--device cuda": device == "cuda",
        "--threads": threads is not None,
        "--rounds": options["rounds"] is not None,
        "--kind all": options["kind"] == "all",
    }
    for option in (option for option, chosen in excluded.items() if chosen):
        raise click.UsageError(f"{option} is not for --instructions")
    from .instruction_counts import missing_tools

    if missing := missing_tools():
        raise click.UsageError(f"--instructions needs {missing}, which is not installed")


def _check_torch(option: str, device: str) -> None:
    if find_spec("torch") is None:
        raise click.UsageError(f"{option} needs PyTorch, which is not installed")
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError(f"{option} needs an NVIDIA GPU that PyTorch sees, and there is none")
    os.environ["POOLTIDE_COMPILE"] = "wait"  # general kernels are not what is measured
