"""Runs the notebooks of examples/, each in a new process, and writes their outputs into them.

    python tools/notebooks.py

Jupyter is not needed: a cell is run as Python, its output is what it prints, and the value of its last line.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))
FORMS = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}
Output = dict[str, Any]


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook: dict[str, Any]) -> list[list[Output]]:
    """Returns the outputs of each code cell, made by a new process in an empty folder."""
    sources = ["".join(cell["source"]) for cell in code_cells(notebook)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).resolve()), "--cells"]
        done = subprocess.run(
            command, input=json.dumps(sources), cwd=folder, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: list[list[Output]] = json.loads(done.stdout)
    return found


def _run_cells(sources: list[str]) -> list[list[Output]]:
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_outputs(source, names, number) for number, source in enumerate(sources, 1)]


def _outputs(source: str, names: dict[str, Any], number: int) -> list[Output]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"<cell {number}>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
    found: list[Output] = []
    if printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        data |= {form: _lines(getattr(value, name)()) for form, name in FORMS.items() if hasattr(value, name)}
        about = {"execution_count": number, "metadata": {}, "output_type": "execute_result"}
        found.append({"data": data, **about})
    return found


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text("utf-8"))
        for number, (cell, outputs) in enumerate(zip(code_cells(notebook), run(notebook), strict=True), 1):
            cell |= {"execution_count": number, "outputs": outputs}
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--cells"]:
        print(json.dumps(_run_cells(json.load(sys.stdin))))
    else:
        main()
