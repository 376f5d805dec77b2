"""Arranges panels of cells in a picture, each with its title, its axes, its numbers and its colour scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .picture import INK, PAPER, Canvas, Cells, Colour, Lines, Picture, Shape, Words, box, heat, text_width

_SIDE = 480  # pixels of the longer side of a panel, where cells can be that small
_LARGEST_CELL, _LEAST_HEIGHT = 40, 24
_LEFT, _TOP, _BOTTOM, _GAP = 52, 30, 44, 24  # around the cells of a panel
_BAR, _BAR_HEIGHT = 14, 60  # the colour scale: its width, and its least height
_TITLE = 16
_GRID: Colour = (225, 225, 225)
_SMALL = 10.0  # size of the numbers in cells


class Undrawable(ValueError):
    """A case that can't be drawn; the text says why."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The values of the first and the last colour; 0 is white."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    title: str
    colours: Canvas  # of the cells
    outlines: Sequence[Lines] = ()  # in cells, from the top left corner
    scale: Scale | None = None
    numbers: NDArray[Any] | None = None  # texts, printed if the cells have room for all

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a cell in pixels."""
        rows, columns, _ = self.colours.shape
        side = max(1, min(_LARGEST_CELL, _SIDE // max(rows, columns)))
        return side, max(side, _LEAST_HEIGHT / rows)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the cells together."""
        rows, columns, _ = self.colours.shape
        return self.cell[0] * columns, self.cell[1] * rows

    @property
    def room(self) -> tuple[float, float]:
        """Width and height with everything around the cells."""
        width, height = self.size
        right = 0.0
        if self.scale:
            right = 12 + _BAR + 6 + max(text_width(text) for text, _ in _labels(self.scale))
        least = _BAR_HEIGHT if self.scale else 0
        return _LEFT + max(width + right, text_width(self.title)), _TOP + max(height, least) + _BOTTOM


def coverage(counts: NDArray[Any], of: str = "windows that hold a cell") -> Panel:
    peak = max(int(counts.max()), 1)
    return Panel(f"coverage: {of}", heat(counts / peak), [], Scale(0, peak), counts.astype(str))


def signed(name: str, values: NDArray[Any]) -> Panel:
    values = values.astype(np.float64)
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max(initial=0)) or 1.0
    grey = " (grey: NaN)" if np.isnan(values).any() else ""
    digits = max(0, 1 - floor(log10(largest)))  # two digits of the largest value
    numbers = np.vectorize(lambda value: f"{value:z.{digits}f}", otypes=[str])(values)
    title = f"{name}, {values.shape[0]}×{values.shape[1]}{grey}"
    return Panel(title, heat(np.clip(values / largest, -1, 1)), [], Scale(-largest, largest), numbers)


def arranged(title: str, addition: str, panels: Sequence[Panel], axes: tuple[str, str]) -> Picture:
    """Puts the panels into two columns, or into one if they are flat. `axes` are named at each panel."""
    rows, columns, _ = panels[0].colours.shape
    across = 1 if columns > 3 * rows else 2
    lines = [panels[i : i + across] for i in range(0, len(panels), across)]
    widths = [max(panel.room[0] for panel in panels[i::across]) for i in range(across)]
    shapes: list[Shape] = [Words(title + addition, _GAP, _GAP + _TITLE, size=_TITLE)]
    y = _GAP + 2 * _TITLE
    for line in lines:
        x = float(_GAP)
        for panel, width in zip(line, widths, strict=False):
            shapes += _shapes(panel, x + _LEFT, y + _TOP, axes)
            x += width + _GAP
        y += int(max(panel.room[1] for panel in line))
    wide = max(sum(widths) + _GAP * (across + 1), text_width(title + addition, _TITLE) + 2 * _GAP)
    return Picture(title, round(wide), y, shapes)


def _shapes(panel: Panel, x: float, y: float, axes: tuple[str, str]) -> Iterator[Shape]:
    """The shapes of a panel whose cells begin at (x, y)."""
    (width, height), (across, down) = panel.size, panel.cell
    rows, columns, _ = panel.colours.shape
    yield Words(panel.title, x, y - 10, size=13)
    yield Cells(panel.colours, x, y, width, height)
    if across >= 6:
        yield Lines([[(x + i * across, y), (x + i * across, y + height)] for i in range(1, columns)], _GRID)
        yield Lines([[(x, y + i * down), (x + width, y + i * down)] for i in range(1, rows)], _GRID)
    for lines in panel.outlines:
        moved = [[(x + a * across, y + b * down) for a, b in line] for line in lines.polylines]
        yield Lines(moved, lines.colour, lines.width if across >= 12 else 0.5)
    yield from _numbers(panel, x, y)
    yield Lines([box(x, y, width, height)])
    for i in range(0, columns, _step(across)):
        yield Words(str(i), x + (i + 0.5) * across, y + height + 15, "middle", 11)
    for i in range(0, rows, _step(down)) if axes[0] else ():
        yield Words(str(i), x - 6, y + (i + 0.5) * down + 4, "end", 11)
    yield Words(axes[1], x + width / 2, y + height + 32, "middle")
    yield Words(axes[0], x - 44, y + height / 2 + 4)
    if panel.scale:
        yield from _bar(panel.scale, x + width + 12, y, max(height, _BAR_HEIGHT))


def _step(cell: float) -> int:
    """Every how many cells an axis has a number."""
    return next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if step * cell >= 26 or step == 500)


def _numbers(panel: Panel, x: float, y: float) -> Iterator[Words]:
    across, down = panel.cell
    if panel.numbers is None or max(text_width(word, _SMALL) for word in panel.numbers.flat) > across:
        return
    brightness = panel.colours @ np.array([0.3, 0.6, 0.1])
    for (i, j), word in np.ndenumerate(panel.numbers):
        colour = INK if brightness[i, j] > 130 else PAPER
        at = x + (j + 0.5) * across, y + (i + 0.5) * down + 0.36 * _SMALL
        yield Words(str(word), *at, "middle", _SMALL, colour)


def _bar(scale: Scale, x: float, y: float, height: float) -> Iterator[Shape]:
    largest = max(abs(scale.low), abs(scale.high))
    values = np.linspace(scale.high, scale.low, 256)[:, None] / largest
    yield Cells(heat(values), x, y, _BAR, height)
    yield Lines([box(x, y, _BAR, height)])
    for text, position in _labels(scale):
        yield Words(text, x + _BAR + 6, y + (1 - position) * (height - 8) + 8)


def _labels(scale: Scale) -> list[tuple[str, float]]:
    """The texts beside a colour scale, each with its place between the low end, 0, and the high end, 1."""
    values = (scale.low, 0.0, scale.high) if scale.low < 0 else (scale.low, scale.high)
    return [(f"{value:.3g}", (value - scale.low) / (scale.high - scale.low)) for value in values]
