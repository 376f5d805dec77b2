"""Draws the speed chart of the README from the benchmark's JSON.

    pooltide bench --threads 1 --dtype f32,bf16 --rounds 5 --json > docs/measured/cpu.json
    python tools/chart.py docs/measured/cpu.json docs/speed.svg

A bar is PyTorch's time ÷ ours, on a logarithmic axis; the line at 1 is PyTorch's speed. The bar ends at the
ratio, and its label has the number. Text is real text, so the chart can be searched and read aloud.
"""

from __future__ import annotations

import json
import math
import sys
from html import escape
from pathlib import Path
from typing import Any

RATIO = "torch ÷ ours, out="
COLOURS = {"f32": "#1f6feb", "bf16": "#d29922", "f16": "#2da44e"}
LEFT, WIDTH, ROW, BAR, TOP = 150, 560, 34, 13, 58
TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)


def rows(results: list[dict[str, Any]]) -> dict[str, list[tuple[str, float]]]:
    """Returns, for each shape in the order of the file, its dtypes and ratios. A failed case has none."""
    found: dict[str, list[tuple[str, float]]] = {}
    for result in results:
        ratio = (result.get("ratios") or {}).get(RATIO)
        if ratio:
            dtype = next(word for word in result["case"].split(":") if word in COLOURS)
            found.setdefault(result["name"], []).append((dtype, ratio))
    return found


def draw(measured: dict[str, Any]) -> str:
    """Returns the chart as SVG."""
    shapes = rows(measured["results"])
    ratios = [ratio for pairs in shapes.values() for _, ratio in pairs]
    low, high = min(0.8, *ratios) / 1.1, max(ratios) * 1.6

    def x(ratio: float) -> float:
        return LEFT + WIDTH * math.log(ratio / low) / math.log(high / low)

    height = TOP + ROW * len(shapes) + 40
    threads, busy = measured["threads"], max(r.get("others", 0) for r in measured["results"])
    title = f"PyTorch's time ÷ pooltide's time, gradients on the CPU, {threads} thread{'s' * (threads > 1)}"
    note = (
        f"{measured['instruction_set']}, medians of {measured['rounds']} rounds; "
        f"other programs used up to {busy:.0%} of the processors"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" role="img"'
        f' font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/><g fill="#1f2328">',
        f'<text x="10" y="20" font-size="15" font-weight="600">{escape(title)}</text>',
        _legend(dict.fromkeys(dtype for pairs in shapes.values() for dtype, _ in pairs)),
    ]
    for tick in TICKS:
        if low < tick < high:
            weight = 2 if tick == 1 else 1
            parts.append(
                f'<path d="M{x(tick):.1f} {TOP - 6}V{height - 34}" stroke="#d0d7de" stroke-width="{weight}"/>'
                f'<text x="{x(tick):.1f}" y="{height - 20}" text-anchor="middle">{tick:g}×</text>'
            )
    for number, (name, pairs) in enumerate(shapes.items()):
        y = TOP + ROW * number
        parts.append(f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{escape(name)}</text>')
        for at, (dtype, ratio) in enumerate(pairs):
            begin, end = sorted((x(1), x(ratio)))
            parts.append(
                f'<rect x="{begin:.1f}" y="{y + at * BAR}" width="{end - begin:.1f}" height="{BAR - 1}"'
                f' fill="{COLOURS[dtype]}"/>'
                f'<text x="{end + 4:.1f}" y="{y + at * BAR + 10}" font-size="10.5">{ratio:.1f}</text>'
            )
    parts.append(f'<text x="10" y="{height - 4}" font-size="10.5">{escape(note)}</text></g></svg>')
    return "\n".join(parts) + "\n"


def _legend(dtypes: dict[str, None]) -> str:
    return "".join(
        f'<rect x="{LEFT + 70 * at}" y="30" width="11" height="11" fill="{COLOURS[dtype]}"/>'
        f'<text x="{LEFT + 70 * at + 15}" y="40">{dtype}</text>'
        for at, dtype in enumerate(dtypes)
    )


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text("utf-8"))), encoding="utf-8")
