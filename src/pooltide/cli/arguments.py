"""The arguments and options that several commands share: PROBLEM, --product, --shard, and paths.

PROBLEM is a case in the notation, or a file of cases, or - for the standard input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..acceptance.cases import CasesError, Line, bounded, count, lines, read, read_lazily
from ..acceptance.manifest_entry import MANIFEST, RESULTS
from ..acceptance.notation import parse
from ..acceptance.shard import Shard, read_shard
from ..acceptance.tensorfile import ENDINGS
from ..acceptance.words import NotationError
from ..operators.pages import PRODUCTS
from ..writing import check_directory, check_file, why
from .output import NoAnswer, one_line

if TYPE_CHECKING:
    from ..acceptance.golden import Made

_PLACES = "pooltide.places"  # which argument has which file
NOTATION = """\b
PROBLEM is a case in one word, or a file of cases (CSV or JSON lines), or -.
\b
  avg2d:32x64x112x112:k3:s2:p1:f32
  avg2d:1x16x4x4:k4x3:s1:ceil:nopad:div-3:cube1:bf16
  roi_align:2x256x50x68:o7x7:boxes512:scale0.25:ratio2:aligned:bf16
  adaptive_max2d:32x256x56x56:o7x7:f32:i64:nan:seed7
\b
The operator, the shape of self, then in any order:
  k3 k3x2    kernel                      f32 f16 bf16 f64  dtype (f32)
  s2 s2x1    stride (the kernel)         i32 i64  dtype of indices (i32)
  p1 p1x0    padding (0)                 NCHW ND  a format (the page's first)
  d2 d2x1    dilation (1)                cl       channels-last in memory
  ceil       ceil mode                   boxes512 boxes=FILE.npy  regions
  nopad      padding is not counted      seed7    seed of the data (0)
  div-3      divisor override            normal uniform integers wide
  cube1      cubeMathType                nan inf  some cells of gradOutput
  o7x7       the output's plane          anywhere indices leave their windows
  atlas-a2   the product
  NAME.WHAT  one parameter: cl, strides and offset in elements, or a wrong
             shape, dtype, format, null: gradOutput.s96x24x6x2 self.f16
avg2d is the gradient of a pool, avg2d_forward the pool; i64: with indices.
"""


class Problems(click.ParamType):  # type: ignore[type-arg]
    """One case, or all lines of a file; a line that is no case has its error."""

    name = "problem"

    def read(self, value: str) -> Any:
        return _lines(value)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, (list, CaseSource)):
            return value
        if os.path.isfile(value):
            _refuse_overwriting(Path(value), False, param, ctx)
        try:
            return self.read(value)
        except NotationError as error:
            self.fail(str(error), param, ctx)
        except CasesError as error:
            raise NoAnswer(str(error)) from None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        if ":" in incomplete:
            return []
        from ..acceptance.words import short_names

        starts = [f"{name}:" for name in short_names() if name.startswith(incomplete)]
        return [*map(CompletionItem, starts), CompletionItem(incomplete, type="file")]


class GradientProblems(Problems):
    """As Problems, for a command that takes gradients, and pools over regions of interest, alone."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        lines_read: list[Line] = super().convert(value, param, ctx)
        for line in lines_read:
            operator = None if line.case is None else line.case.operator
            if operator is not None and not operator.gradient and not operator.regional:
                text = f"{line.case} is a forward; it must be a gradient, which --kind forwards also measures"
                self.fail(text, param, ctx)
        return lines_read


def _lines(value: str) -> list[Line]:
    """The lines that the argument means. CasesError or NotationError: it means none."""
    if value != "-" and ":" in value and not os.path.isfile(value):
        return [Line(1, "case", parse(value))]
    if value != "-" and not os.path.exists(value):
        raise NotationError(
            f"{value!r} is no case and no file; a case is one word such as avg2d:2x3x11x13:k3"
        )
    if value == "-" and sys.stdin is None:
        raise CasesError("the standard input is closed")
    lines_read = list(lines(bounded(sys.stdin.buffer))) if value == "-" else read(Path(value))
    if not lines_read:
        raise CasesError(f"{'the standard input' if value == '-' else value} has no case")
    return lines_read


@dataclass(slots=True)
class CaseSource:
    """The lines of a case, a file or the standard input, read one by one."""

    lines: Iterator[Line]
    total: int


class _SourceType(Problems):
    """As Problems, but a file is read while its cases are worked on."""

    def read(self, value: str) -> Any:
        return _source(value)


def _source(value: str) -> CaseSource:
    """CasesError or NotationError: the argument means no case."""
    if value == "-" or not os.path.isfile(value):
        in_memory = _lines(value)
        return CaseSource(iter(in_memory), len(in_memory))
    lines = read_lazily(Path(value))
    first = next(lines, None)
    if first is None:
        raise CasesError(f"{value} has no case")
    return CaseSource(chain([first], lines), count(Path(value)))


class NamedPath(click.Path):
    """A click.Path with a name: an empty one would mean the working directory, and none has a null byte."""

    def __init__(self, **kinds: bool) -> None:
        super().__init__(path_type=Path, **kinds)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fspath(value)
        if not text:
            self.fail("the path is empty; it must name a file or a directory", param, ctx)
        if "\0" in text:
            self.fail(f"the path {text!r} has a null byte; it must have none", param, ctx)
        try:
            path = Path(super().convert(value, param, ctx))  # type: ignore[arg-type]
        except click.BadParameter as error:  # an error of the files, not of the usage
            raise NoAnswer(error.message) from None
        _refuse_overwriting(path, isinstance(self, OutputPath), param, ctx)
        return path


def _refuse_overwriting(
    path: Path, written: bool, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    """As `refuse_overwriting`, of the path of an argument."""
    if ctx is not None and param is not None:
        name = max(param.opts, key=len) if isinstance(param, click.Option) else str(param.name).upper()
        refuse_overwriting(path, written, name, ctx)


def refuse_overwriting(path: Path, written: bool, name: str, ctx: click.Context) -> None:
    """UsageError: a file of one argument would be written over by another. A device may be given twice."""
    if path.exists() and not path.is_file():
        return
    other, also_written = ctx.meta.setdefault(_PLACES, {}).setdefault(path.resolve(), (name, written))
    if other != name and (written or also_written):
        raise click.UsageError(f"{other} and {name} are both {path}; each needs its own file", ctx)


def refuse_data(path: Path) -> None:
    """NoAnswer: an output would take the place of data, or lie in the directory of a case of golden data."""
    from ..acceptance.msprobe_dump import DUMP

    place = path.resolve()  # a link stays, and its target is replaced
    if place.suffix in ENDINGS or place.name in (MANIFEST, DUMP):
        text = f"the name is that of data: {', '.join(ENDINGS)}, {MANIFEST} or {DUMP}"
        raise NoAnswer(f"{path}: {text}; give another name")
    folder = place if path.is_dir() else place.parent
    if (folder.parent / MANIFEST).is_file() and any((folder / f"{name}.npy").exists() for name in RESULTS):
        raise NoAnswer(f"{path}: it would lie in the golden data of {folder.parent}; give another place")


class OutputPath(NamedPath):
    """A file or a directory that is written after the work, but checked before it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        try:
            refuse_data(path)
            check_file(path) if self.file_okay else check_directory(path)
        except OSError as error:
            raise NoAnswer(f"{path}: can't be written: {why(error)}") from None
        return path


class _ShardType(click.ParamType):  # type: ignore[type-arg]
    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        if isinstance(value, Shard):
            return value
        try:
            return read_shard(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


source_argument = click.argument("source", metavar="[PROBLEM]", type=_SourceType(), required=False)
problem_argument = click.argument("problems", metavar="PROBLEM", type=Problems())
product_option = click.option(
    "--product",
    type=click.Choice(list(PRODUCTS)),
    metavar="NAME",
    help=f"Overrides the product that a case names: {', '.join(PRODUCTS)}.",
)
shard_option = click.option(
    "--shard", type=_ShardType(), metavar="I/N", help="Only share I of N of the cases; merge joins them."
)


def failed(line: Line | Made, text: str) -> str:
    """The message about one case of a file, after its line and name."""
    return one_line(f"line {line.number} ({line.name}): {text}")
