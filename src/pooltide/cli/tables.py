"""Formats tables as aligned text or as Markdown, without colours."""

from __future__ import annotations

from collections.abc import Sequence

Rows = Sequence[Sequence[str]]


def aligned(head: Sequence[str], rows: Rows) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def markdown(head: Sequence[str], rows: Rows) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
