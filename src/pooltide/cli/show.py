"""`pooltide show`: draws a case as a PNG picture."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..acceptance.cases import Line
from ..acceptance.inputs import TooLarge
from ..acceptance.picture import png
from ..acceptance.show import Undrawable, draw_case
from ..acceptance.trial import Refused
from ..writing import why, write_whole
from .paths import NamedPath
from .problems import NOTATION, problem_argument
from .speech import one_line, reproduce, say


@click.command(epilog=NOTATION)
@problem_argument
@click.option("-o", "--output", required=True, type=NamedPath(dir_okay=False), help="The PNG to write.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object in place of a sentence.")
@click.option("--slice", "depth", type=int, help="Of a volume, the input depth to draw (the middle one).")
def command(problems: list[Line], output: Path, as_json: bool, depth: int | None) -> None:
    """Draw the windows over the input, how many cover each cell, and where the gradient goes."""
    if len(problems) != 1 or problems[0].case is None:
        raise click.UsageError("show draws one case; give one PROBLEM that can be read")
    case = problems[0].case
    try:
        canvas = draw_case(case, depth)
    except (Refused, Undrawable, TooLarge, MemoryError) as error:
        text = str(error) or "there was not enough memory"
        say(f"{one_line(text)}\n{reproduce('show', case, '-o', output)}", err=True)
        raise SystemExit(1) from None
    try:
        write_whole(output, png(canvas))
    except OSError as error:
        raise click.UsageError(f"{output}: can't be written: {why(error)}") from None
    height, width, _ = canvas.shape
    record = {"output": str(output), "width": width, "height": height, "case": str(case)}
    say(json.dumps(record) if as_json else f"{output}: {width}×{height} pixels, {case}")
