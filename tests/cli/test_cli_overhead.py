"""The program that measures what a call costs: it times equal results, and runs under its documented name."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pooltide.cli.bench.named_shapes import SHAPES

torch = pytest.importorskip("torch")

import pooltide.torch as pt  # noqa: E402
from pooltide.cli.bench import overhead, pool_overhead  # noqa: E402
from pooltide.cli.bench.model_training import VARIANTS  # noqa: E402
from pooltide.operators.catalog import gradients  # noqa: E402


@pytest.mark.parametrize("function", gradients())
def test_both_calls_compute_the_same(function: str) -> None:
    theirs, ours = overhead.calls_of(function)
    assert torch.equal(theirs().reshape(ours().shape), ours())


def test_large_shapes_are_printed_with_their_gains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(overhead.LARGE) <= set(SHAPES)
    monkeypatch.setattr(overhead, "SHAPES", {"tiny": "adaptive_max2d:2x3x8x9:o4x5:i64"})
    monkeypatch.setattr(overhead, "LARGE", ("tiny",))
    overhead.large()
    row = capsys.readouterr().out.splitlines()[1]
    assert row.startswith("adaptive_max_pool2d_backward 2×3×8×9→4×5 ")
    assert row.count("×") == 6
    assert row.endswith("%")


def test_each_variant_of_a_pool_is_timed_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str]] = []

    class Worker:
        def __init__(self, variant: str, threads: int) -> None:
            self.variant = variant

        def __enter__(self) -> Worker:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def submit(self, function: Any, name: str, device: str) -> Any:
            asked.append((self.variant, name))
            assert all(time > 0 for time in function(name, device))
            turn, factor = sum(one == asked[-1] for one in asked), list(VARIANTS).index(self.variant) + 1
            return SimpleNamespace(result=lambda: tuple(factor * time / turn for time in (4.0, 8.0, 2.0)))

    monkeypatch.setattr(pool_overhead, "worker", Worker)
    monkeypatch.setattr(
        pool_overhead, "min_times", lambda *calls, **_: [float(call() is not None) for call in calls]
    )
    pool_overhead.run("cpu")
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == [name.removesuffix("_backward") for name in gradients()]
    least = [("2.7 µs", 2), ("2.0 µs", 3), ("4.0 µs", 3), ("1.0 µs", 3)]
    words = [word for time, factor in least for word in (*time.split(), f"{factor:.2f}×")]
    assert all(row.split()[1:] == words for row in rows)


def test_the_documented_name_runs_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, Any] = {}
    monkeypatch.setattr(runpy, "run_module", lambda name, **options: started.update(options, name=name))
    runpy.run_path(str(Path(pt.__file__).with_name("overhead.py")), run_name="__main__")
    assert started == {"name": overhead.__name__, "run_name": "__main__"}
    assert importlib.util.find_spec(overhead.__name__) is not None
