"""`pooltide bench --models`: the models train, and a training that does not repeat is an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner

from pooltide.cli import main

torch = pytest.importorskip("torch")

from pooltide.cli.bench import model_training  # noqa: E402
from pooltide.cli.bench.models import MODELS  # noqa: E402
from pooltide.torch import patch  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads wait for each other while other tests use the processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights_after_a_step(name: str) -> list[Any]:
    run = model_training.Training(replace(MODELS[name], batch={"cpu": 1}), "cpu")
    before = [weight.clone() for weight in run.net.parameters()]
    run.step()
    after = list(run.net.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return after


@pytest.mark.parametrize("name", MODELS)
def test_a_step_gives_the_same_weights_with_our_gradients(name: str) -> None:
    plain = weights_after_a_step(name)
    with patch():
        patched = weights_after_a_step(name)
    assert all(map(torch.equal, plain, patched))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: replace(MODELS[name], batch={"cpu": 1}) for name in ("LeNet", "1-D audio")}
    monkeypatch.setattr(model_training, "MODELS", few)


def bench(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", "--models", "--rounds", "3", "--threads", "1", *arguments])


@pytest.mark.usefixtures("few")
def test_json_has_every_model_and_variant() -> None:
    run = bench("--json")
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert [row["model"] for row in told["models"]] == ["LeNet", "1-D audio"]
    variants = {"plain", "patch()", "patch(forward=True)"} - told["skipped"].keys()
    for row in told["models"]:
        assert row["seconds"].keys() == row["repeats"].keys() == variants
        assert min(row["seconds"].values()) > 0
        assert all(row["repeats"].values())


@pytest.mark.usefixtures("few")
def test_a_training_that_does_not_repeat_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = count()
    monkeypatch.setattr(model_training.Training, "weights", lambda self: [torch.tensor(next(counted))])
    run = bench()
    assert run.exit_code == 1
    assert "LeNet, patch(): two trainings from the same seed gave different weights" in run.stderr
    assert "plain:" not in run.stderr
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("LeNet"))
    assert line.split()[-2:] == ["no", "no"]
