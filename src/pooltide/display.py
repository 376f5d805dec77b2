"""Tables in HTML, which notebooks show for plans, verdicts, cases and trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(rows: Iterable[Sequence[object]]) -> str:
    """A table whose first column names what the others say. All texts are escaped."""
    return f"<table>{''.join(map(_row, rows))}</table>"


def _row(cells: Sequence[object]) -> str:
    first, *others = (escape(str(cell)) for cell in cells)
    values = "".join(f'<td style="text-align:left">{cell}</td>' for cell in others)
    return f'<tr><th style="text-align:left">{first}</th>{values}</tr>'
