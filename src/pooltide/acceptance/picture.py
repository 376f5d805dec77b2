"""Draws rectangles, heat maps and text into RGB arrays, and encodes them as PNG, with NumPy and zlib only.

A canvas is a (height, width, 3) array of bytes; every function here makes one or draws on one.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Canvas = NDArray[np.uint8]
Colour = tuple[int, int, int]

INK: Colour = (38, 38, 46)
PAPER: Colour = (255, 255, 255)
SERIES: tuple[Colour, ...] = (
    (31, 119, 180), (214, 96, 0), (44, 140, 44), (190, 40, 44), (130, 90, 170),
    (130, 80, 70), (200, 90, 170), (90, 90, 90), (150, 150, 20), (10, 150, 170),
)  # fmt: skip
_HEAT = ((255, 255, 255), (253, 224, 165), (244, 140, 90), (200, 50, 70), (80, 15, 70))
_COLD = ((255, 255, 255), (170, 205, 235), (80, 145, 205), (30, 80, 150), (10, 30, 80))

# Letters of 3×5 dots as 15 bits, row by row from the top left.
_GLYPHS = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-.:,()[]=+/×_'<|",
        [
            31599, 11415, 29671, 29647, 23497, 31183, 31215, 29266, 31727, 31695, 11245, 27566,
            14627, 27502, 31143, 31140, 14699, 23533, 29847, 4714, 23469, 18727, 24557, 27501,
            11114, 27556, 11131, 27565, 14478, 29842, 23407, 23402, 23549, 23213, 23186, 29351,
            448, 2, 1040, 20, 5265, 17556, 13459, 25750, 3640, 1488, 4772, 2728,
            7, 9216, 5393, 9362,
        ],
        strict=True,
    )
)  # fmt: skip


def blank(height: int, width: int, colour: Colour = PAPER) -> Canvas:
    return np.full((height, width, 3), colour, np.uint8)


def png(canvas: Canvas) -> bytes:
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


def _ramp(share: NDArray[np.float64], stops: tuple[Colour, ...]) -> NDArray[np.float64]:
    at = np.linspace(0, 1, len(stops))
    share = np.nan_to_num(share)
    return np.stack([np.interp(share, at, [stop[i] for stop in stops]) for i in range(3)], axis=-1)


def enlarge(canvas: Canvas, times: int) -> Canvas:
    return canvas.repeat(times, axis=0).repeat(times, axis=1)


def paste(canvas: Canvas, part: Canvas, y: int, x: int) -> None:
    canvas[y : y + part.shape[0], x : x + part.shape[1]] = part


def frame(canvas: Canvas, top: int, left: int, bottom: int, right: int, colour: Colour) -> None:
    """Draw the outline of a rectangle, without its parts outside the canvas."""
    height, width, _ = canvas.shape
    y0, x0, y1, x1 = max(top, 0), max(left, 0), min(bottom, height), min(right, width)
    if 0 <= top < height:
        canvas[top, x0:x1] = colour
    if 0 < bottom <= height:
        canvas[bottom - 1, x0:x1] = colour
    if 0 <= left < width:
        canvas[y0:y1, left] = colour
    if 0 < right <= width:
        canvas[y0:y1, right - 1] = colour


def text(canvas: Canvas, words: str, y: int, x: int, colour: Colour = INK, size: int = 2) -> None:
    """Draw words in capitals, each dot `size` pixels wide; text beyond the canvas is cut off."""
    for letter in words.upper():
        bits = _GLYPHS.get(letter, 0)
        for dot in range(15):
            if bits >> (14 - dot) & 1:
                top, left = y + dot // 3 * size, x + dot % 3 * size
                canvas[top : top + size, left : left + size] = colour
        x += 4 * size


def text_width(words: str, size: int = 2) -> int:
    return 4 * size * len(words)
