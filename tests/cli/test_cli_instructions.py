"""`pooltide bench --instructions`: what callgrind counted is read right, repeats, and tells kernels apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pooltide.acceptance.notation import parse
from pooltide.cli import main
from pooltide.cli.bench import instruction_counts
from pooltide.cli.bench.instruction_counts import Count, resized

CASE = "avg2d:8x16x56x56:k2:s2:f32"
MORE = "avg2d:8x16x56x56:k3:s1:p1:f32"  # nine windows hold a cell instead of one
DUMP = "version: 1\ncreator: callgrind-3.19.0\ndesc: Trigger: --dump-before=getsid\n\n{}\n\nfn=(1)\n1 2 3\n\n{}\n"


def bench(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", "--instructions", *arguments])


def test_a_dump_is_read_by_the_names_of_its_events(tmp_path: Path) -> None:
    path = tmp_path / "counts.2"
    events = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw"
    path.write_text(DUMP.format(events, "totals: 1000 300 200 9 7 4 1 2 3"))
    assert Count.read(path) == Count(1000, 64 * (7 + 4))
    path.write_text(DUMP.format(events, "totals: 1000 300 200 9 7"))  # callgrind leaves out zeros at the end
    assert Count.read(path) == Count(1000, 64 * 7)


def test_named_shapes_get_about_a_million_cells() -> None:
    assert resized(parse("avg2d:32x2048x7x7:k7")).shape == (10, 2048, 7, 7)
    assert resized(parse("max2d:16x128x112x112:k2")).shape == (1, 128, 112, 112)


@pytest.mark.parametrize(
    "options",
    [
        ["--threads", "2"],
        ["--rounds", "3"],
        ["--kind", "all"],
        ["--device", "cuda"],
    ],
)
def test_what_is_not_counted_is_refused(options: list[str]) -> None:
    run = bench(CASE, *options)
    assert run.exit_code == 2
    assert "is not for --instructions" in run.output


def test_counting_is_not_for_drawn_problems() -> None:
    run = bench("--drawn", "2")
    assert run.exit_code == 2
    assert "--instructions is not for --drawn" in run.output


def test_without_valgrind_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    run = bench(CASE)
    assert run.exit_code == 2
    assert "--instructions needs valgrind, vgdb, which is not installed" in run.output


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the command prints for four cases, of which the last one has no window."""
    if missing := instruction_counts.missing_tools():
        pytest.skip(f"{missing} is not installed")
    path = tmp_path_factory.mktemp("counts") / "cases.txt"
    path.write_text(f"{CASE}\n{CASE}:seed2\n{MORE}\navg2d:1x1x5x5:k9\n")
    return bench(str(path), "--json")


@pytest.mark.slow
def test_counts_repeat_and_tell_kernels_apart(counted: Any) -> None:
    assert counted.exit_code == 2, counted.output
    assert "avg2d:1x1x5x5:k9" in counted.stderr  # no window fits
    first, again, dear = json.loads(counted.stdout)["results"]
    assert [row["case"] for row in (first, again, dear)] == [CASE, f"{CASE}:seed2", MORE]
    assert first["kernel"] == "stride_2"
    assert first["cells"] == 8 * 16 * 56 * 56
    assert first["least_bytes"] == 4 + 4 / 4
    assert again["ours"]["instructions"] == pytest.approx(first["ours"]["instructions"], rel=0.01)
    # AVX2 writes eight cells by one instruction; a scalar kernel needs several per cell.
    assert 0.25 < first["ours"]["instructions"] < 4
    assert dear["ours"]["instructions"] > 1.5 * first["ours"]["instructions"]
    assert 4 < first["ours"]["bytes"] < 8
    if "torch" in first:
        assert first["torch"]["instructions"] > 10


@pytest.mark.slow
def test_counts_are_a_table_of_text(counted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the counts that the command has printed as JSON: callgrind takes long."""
    rows = json.loads(counted.stdout)["results"][:1]
    monkeypatch.setattr(instruction_counts, "_counts", lambda kind, words: rows)
    run = bench(CASE)
    assert run.exit_code == 0, run.output
    *_, head, below, _, row = run.stdout.splitlines()
    assert (head.split()[0], below.split()[0]) == ("instructions:", "ours")
    assert row.endswith(f"stride_2  {CASE}")
