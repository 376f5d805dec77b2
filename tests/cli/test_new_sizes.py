"""What the first call of a new image size costs: the program runs, and a first call is timed against later ones."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

import pooltide.torch as pt  # noqa: E402
from pooltide.cli.bench import new_sizes  # noqa: E402


@pytest.mark.parametrize("more", [[], ["--steps", "--forward"]], ids=["pools", "steps"])
def test_every_row_is_measured_without_a_patch_and_with_one(
    more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", ["new_sizes", "--sizes", "2", *more])
    monkeypatch.setattr(new_sizes, "POOLS", {"max k2 s2": new_sizes.POOLS["max k2 s2"]})
    try:
        new_sizes.main()
    finally:
        torch.set_num_threads(threads)
        new_sizes.gc.callbacks.remove(new_sizes.watch_collector)
    lines = capsys.readouterr().out.splitlines()
    names = ["planes", "channels-last"] if more else ["max k2 s2"]
    patch = "patch(forward=True)" if more else "patch()"
    heads = [line for line in lines if line.startswith(("PyTorch", "patch", *names))]
    rows = [next(word for word in ("PyTorch", patch, *names) if line.startswith(word)) for line in heads]
    assert rows == ["PyTorch", *names, patch, *names]
    assert not pt.is_patched()


def test_the_first_call_is_not_among_the_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, times = new_sizes.Timer("cpu"), iter([9.0, 3.0, 2.0, 4.0] * 2)
    monkeypatch.setattr(new_sizes.Timer, "__call__", lambda *_: (next(times), 0.5))
    images = new_sizes.images([(3, 5), (7, 5)], 2, True, "cpu")
    assert list(timer.of_sizes(abs, images)) == [(9.0, 2.0, 0.5)] * 2
