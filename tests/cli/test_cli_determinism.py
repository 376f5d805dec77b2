"""`pooltide determinism`: what PyTorch refuses, and that patch() refuses nothing; on a GPU and on a CPU."""

from __future__ import annotations

import json

import pytest

from commandline import pooltide

torch = pytest.importorskip("torch")


def test_on_a_cpu_pytorch_refuses_unpools_and_the_patch_does_not() -> None:
    answer = json.loads(pooltide("determinism", "--device", "cpu", "--json"))
    assert set(answer["patched"].values()) == {"the same every time"}
    raising = {name for name, outcome in answer["pytorch"].items() if outcome == "raises"}
    assert raising == {"max_unpool1d", "max_unpool2d", "max_unpool3d"}
    assert len(answer["pytorch"]) == 15
    assert answer["runs"] == 20


def test_a_difference_between_runs_is_said_and_gives_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from pooltide.cli import determinism
    from pooltide.torch import determinism as measured

    monkeypatch.setattr(measured, "_computations", lambda device: {"noise": lambda: torch.randn(3)})
    result = CliRunner().invoke(determinism.command, ["--device", "cpu"])
    assert result.exit_code == 1, result.output
    assert result.output.count("silently differs") == 2
    assert not torch.are_deterministic_algorithms_enabled()


def test_without_a_gpu_cuda_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert "needs an NVIDIA GPU" in pooltide("determinism", "--device", "cuda", rc=2)
