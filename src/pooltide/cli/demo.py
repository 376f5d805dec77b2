"""`pooltide demo`: runs the programs of CANN's documents in Python, and checks their results."""

from __future__ import annotations

import contextlib
import io
import shlex
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir
from textwrap import shorten
from types import ModuleType
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape

from ..acceptance.oracle import golden_result
from ..acl.state import get_checks
from ..arrays.reader import ARRAYS
from ..arrays.volumes import as_volume
from ..operators.binding import bind
from ..operators.catalog import operators
from ..problem.problem import lower

_ROOM = 50  # columns for values, after what stands before them
PROGRAMS = (
    "adaptive_avg_pool3d_backward",
    "avg_pool2d_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
)


@click.command()
def command() -> None:
    """Run the documents' programs, in Python, and check their results.

    The input of the third program is wrong, as in its document: the demo shows the message of the checks.
    With POOLTIDE_CHECKS=strict its stream fails instead. The last lines are commands to go on with.
    """
    console = Console(highlight=False, soft_wrap=True)
    ends = {name: _show(console, name) for name in PROGRAMS}
    agreed = [name for name, end in ends.items() if end == "agrees"]
    stopped = [name for name, end in ends.items() if end == "stopped by strict checks"]
    console.print(f"[green]{len(agreed)} of {len(PROGRAMS)} programs agree with the float64 reference.[/]")
    if stopped:
        console.print(f"{len(stopped)} was stopped by strict checks, as it should: {', '.join(stopped)}.")
    if wrong := sorted(set(PROGRAMS) - {*agreed, *stopped}):
        console.print(f"[red]{len(wrong)} went wrong: {', '.join(wrong)}.[/]")
        raise SystemExit(1)
    console.print("\nNext, one command for each door:")
    for door, command in next_commands().items():
        console.print(f"  {door:<23} {escape(command)}")


def next_commands() -> dict[str, str]:
    """A command for each door of the README. They write nothing but a program among the temporary files."""
    source = files("pooltide.examples") / "avg_pool2d_backward.cpp"
    program = shlex.quote(str(Path(gettempdir()) / "pooltide-avg"))
    torch = "" if find_spec("torch") else "pip install torch && "
    return {
        "you train with PyTorch": f"{torch}pooltide determinism",
        "you write for Ascend": f"pooltide cc {shlex.quote(str(source))} -o {program} && {program}",
        "you accept operators": "pooltide run avg2d:2x3x23x29:k3:s2:p1:f16 --verbose",
    }


def _show(console: Console, name: str) -> str:
    example = import_module(f"pooltide.examples.{name}")
    operator = operators()[name]
    console.print(f"[bold]{operator.name}[/]")
    for line in (example.__doc__ or "").strip().splitlines():
        console.print(f"  [dim]{escape(line)}[/]" if line else "")
    warnings = io.StringIO()
    try:
        with contextlib.redirect_stderr(warnings):
            got = example.main()
    except SystemExit as stopped:
        console.print(f"  stopped: {escape(str(stopped))}\n")
        expected = get_checks() == "strict" and name == "adaptive_max_pool2d_backward"
        return "stopped by strict checks" if expected else "stopped"
    _print_plane("gradOutput", example.GRAD_OUTPUT, console)
    _print_plane("result", got, console)
    for line in warnings.getvalue().splitlines():
        console.print(f"  [yellow]{escape(line)}[/]")
    good = bool((got == _reference(example)).all())
    console.print(f"  {'[green]equals' if good else '[red]differs from'} the float64 reference[/]\n")
    return "agrees" if good else "differs"


def _print_plane(name: str, array: Any, console: Console) -> None:
    values = " ".join(f"{v:g}" for v in array.astype(np.float32).flat)
    shown = shorten(values, _ROOM, placeholder=f" … ({array.size} values)")
    console.print(f"  {name:<10} {array.shape!s:<16} {shown}")


def _reference(example: ModuleType) -> Any:
    """The gradient by the float64 reference, which also ignores an index outside the plane."""
    operator = operators()[example.FUNCTION]
    indices = getattr(example, "INDICES", None)
    attributes = tuple(example.ATTRIBUTES.values())
    call = bind(ARRAYS, operator, example.GRAD_OUTPUT, example.SELF.shape, indices, attributes, None)
    axes = len(operator.axes)
    volume = None if indices is None else as_volume(indices, axes)
    golden = golden_result(lower(call), as_volume(example.GRAD_OUTPUT, axes), volume)
    return golden.rounded.reshape(example.SELF.shape)
