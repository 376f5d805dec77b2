"""`pooltide show`: draws a case as a picture, in the format that the name of the file asks for."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..acceptance.cases import Line
from ..acceptance.inputs import TooLarge
from ..acceptance.interactive import interactive_page
from ..acceptance.notation import Case
from ..acceptance.panels import Undrawable
from ..acceptance.picture import Picture, plotted, svg
from ..acceptance.show import draw_case
from ..acceptance.trial import Refused
from ..writing import why, write_whole
from .arguments import NOTATION, OutputPath, problem_argument
from .output import NoAnswer, one_line, reproduce, say

_FORMATS = ("svg", "png", "pdf", "html")


@click.command(epilog=NOTATION)
@problem_argument
@click.option(
    "-o", "--output", required=True, type=OutputPath(dir_okay=False), help="A file .svg, .png, .pdf or .html."
)
@click.option("--json", "as_json", is_flag=True, help="A JSON object in place of a sentence.")
@click.option("--slice", "depth", type=int, help="Of a volume, the input depth to draw (the middle one).")
def command(problems: list[Line], output: Path, as_json: bool, depth: int | None) -> None:
    """Draw the windows over the input, how many cover each cell, and where the gradient goes.

    PNG and PDF need matplotlib, SVG needs nothing. A name without a suffix means SVG. HTML is a page for the
    browser: move over a cell or a window to see the windows, divisors and terms that belong to it.
    """
    if len(problems) != 1 or problems[0].case is None:
        raise click.UsageError("show draws one case; give one PROBLEM that can be read")
    case, format = problems[0].case, output.suffix[1:].lower() or "svg"
    if format not in _FORMATS:
        raise click.UsageError(f"-o has the suffix {output.suffix!r}; it must be .svg, .png, .pdf or .html")
    try:
        content, facts, sentence = _page(case, depth) if format == "html" else _drawn(case, depth, format)
    except (Refused, Undrawable, TooLarge, MemoryError) as error:
        text = str(error) or "there was not enough memory"
        say(f"{one_line(text)}\n{reproduce('show', case, '-o', output)}", err=True)
        raise SystemExit(2) from None
    try:
        write_whole(output, content)
    except OSError as error:
        raise NoAnswer(f"{output}: can't be written: {why(error)}") from None
    record = {"output": str(output)} | facts | {"case": str(case)}
    say(json.dumps(record) if as_json else f"{output}: {sentence}, {case}")


def _page(case: Case, depth: int | None) -> tuple[bytes, dict[str, int], str]:
    """The content of the file, facts about it, and the same facts as words."""
    content = interactive_page(case, depth).encode()
    return content, {"bytes": len(content)}, f"a page of {len(content)} bytes for the browser"


def _drawn(case: Case, depth: int | None, format: str) -> tuple[bytes, dict[str, int], str]:
    """As `_page`, for a picture."""
    picture = draw_case(case, depth)
    facts = {"width": picture.width, "height": picture.height}
    return _encoded(picture, format), facts, f"{picture.width}×{picture.height} pixels"


def _encoded(picture: Picture, format: str) -> bytes:
    if format == "svg":
        return svg(picture)
    try:
        return plotted(picture, format)
    except ImportError as error:
        text = f"a .{format} file needs matplotlib ({error}): pip install 'pooltide[plot]'"
        raise click.UsageError(f"{text}, or give a name that ends with .svg") from None
