"""Pictures made of lines, words and coloured cells, written as SVG, PNG or PDF.

A shape has its place in pixels, from the top left corner. `svg` needs no other package; `plotted` makes PNG
and PDF from the same shapes with matplotlib. Words stay text in SVG and PDF, so they can be copied.
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Canvas = NDArray[np.uint8]  # (height, width, 3): a colour for each cell
Colour = tuple[int, int, int]
Polyline = list[tuple[float, float]]

INK: Colour = (38, 38, 46)
PAPER: Colour = (255, 255, 255)
SERIES: tuple[Colour, ...] = (
    (31, 119, 180), (214, 96, 0), (44, 140, 44), (190, 40, 44), (130, 90, 170),
    (130, 80, 70), (200, 90, 170), (90, 90, 90), (150, 150, 20), (10, 150, 170),
)  # fmt: skip
_HEAT = ((255, 255, 255), (253, 224, 165), (244, 140, 90), (200, 50, 70), (80, 15, 70))
_COLD = ((255, 255, 255), (170, 205, 235), (80, 145, 205), (30, 80, 150), (10, 30, 80))
_DPI = 100
_ANCHORS: dict[str, Literal["left", "center", "right"]] = {
    "start": "left",
    "middle": "center",
    "end": "right",
}


@dataclass(frozen=True, slots=True)
class Lines:
    polylines: list[Polyline]
    colour: Colour = INK
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Words:
    text: str
    x: float
    y: float  # of the baseline
    anchor: str = "start"  # or middle, end
    size: float = 12.0
    colour: Colour = INK


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Coloured cells, stretched over a rectangle."""

    colours: Canvas
    x: float
    y: float
    width: float
    height: float


Shape = Lines | Words | Cells


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Picture:
    title: str  # in the data about the file
    width: int
    height: int
    shapes: list[Shape]

    def __repr__(self) -> str:
        return f"<picture of {self.width}×{self.height} pixels: {self.title}>"

    def _repr_svg_(self) -> str:
        return svg(self).decode()


def box(x: float, y: float, width: float, height: float) -> Polyline:
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]


def text_width(text: str, size: float = 12.0) -> float:
    """An upper estimate, because no font is measured."""
    return 0.66 * size * len(text)


def svg(picture: Picture) -> bytes:
    size = f'width="{picture.width}" height="{picture.height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {picture.width} {picture.height}"'
    parts = [
        f'{head} font-family="DejaVu Sans, Verdana, sans-serif">',
        f"<title>{escape(picture.title)}</title>",
        f'<rect {size} fill="{_hex(PAPER)}"/>',
        *map(_element, picture.shapes),
        "</svg>\n",
    ]
    return "\n".join(parts).encode()


def _element(shape: Shape) -> str:
    if isinstance(shape, Words):
        return (
            f'<text x="{shape.x:g}" y="{shape.y:g}" font-size="{shape.size:g}" text-anchor="{shape.anchor}" '
            f'fill="{_hex(shape.colour)}">{escape(shape.text, quote=False)}</text>'
        )
    if isinstance(shape, Cells):
        data = base64.b64encode(png(shape.colours)).decode()
        return (
            f'<image x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" height="{shape.height:g}" '
            'preserveAspectRatio="none" style="image-rendering:pixelated" '
            f'href="data:image/png;base64,{data}"/>'
        )
    path = "".join("M" + "L".join(f"{x:g} {y:g}" for x, y in line) for line in shape.polylines)
    return f'<path d="{path}" fill="none" stroke="{_hex(shape.colour)}" stroke-width="{shape.width:g}"/>'


def plotted(picture: Picture, format: str) -> bytes:
    """The picture as "png" or "pdf". ImportError: matplotlib is not installed."""
    from matplotlib import rc_context
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    points = 72 / _DPI
    figure = Figure(figsize=(picture.width / _DPI, picture.height / _DPI), dpi=_DPI)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    for layer, shape in enumerate(picture.shapes):
        if isinstance(shape, Words):
            axes.text(
                shape.x,
                shape.y,
                shape.text,
                fontsize=shape.size * points,
                ha=_ANCHORS[shape.anchor],
                va="baseline",
                color=_hex(shape.colour),
                zorder=layer,
                parse_math=False,
            )
        elif isinstance(shape, Cells):
            extent = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
            axes.imshow(shape.colours, extent=extent, interpolation="nearest", aspect="auto", zorder=layer)
        else:
            lines = [np.array(line) for line in shape.polylines]
            width = shape.width * points
            axes.add_collection(
                LineCollection(lines, colors=_hex(shape.colour), linewidths=width, zorder=layer)
            )
    axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
    about: dict[str, Any] = {"Title": picture.title}
    about |= {"CreationDate": None} if format == "pdf" else {}  # equal cases give equal files
    file = BytesIO()
    with rc_context({"pdf.fonttype": 42}):  # a font with character codes, so that text can be copied
        figure.savefig(file, format=format, metadata=about)
    return file.getvalue()


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def png(canvas: Canvas) -> bytes:
    """A PNG with one pixel for each cell."""
    height, width, _ = canvas.shape
    rows = np.zeros((height, width * 3 + 1), np.uint8)  # each row begins with filter type 0
    rows[:, 1:] = canvas.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")]
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def heat(values: NDArray[Any]) -> Canvas:
    """Colours for values from −1 to 1: white for 0, warm above, cold below; grey for NaN."""
    values = np.asarray(values, np.float64)
    warm, cold = _ramp(np.clip(values, 0, 1), _HEAT), _ramp(np.clip(-values, 0, 1), _COLD)
    colours = np.where((values >= 0)[..., None], warm, cold)
    return np.where(np.isnan(values)[..., None], np.uint8(170), colours).astype(np.uint8)


def _ramp(position: NDArray[np.float64], stops: tuple[Colour, ...]) -> NDArray[np.float64]:
    at = np.linspace(0, 1, len(stops))
    position = np.nan_to_num(position)
    return np.stack([np.interp(position, at, [stop[i] for stop in stops]) for i in range(3)], axis=-1)
