"""`pooltide bench --models`: the networks are those of the papers, they train, and what does not repeat is an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner

from pooltide.cli import main

torch = pytest.importorskip("torch")

from pooltide.cli.bench import model_training, networks, options  # noqa: E402
from pooltide.cli.bench.model_training import Setting  # noqa: E402
from pooltide.cli.bench.networks import NETWORKS, Network  # noqa: E402
from pooltide.torch import is_patched, patch  # noqa: E402
from shares import fast_if  # noqa: E402

SMALLEST = Setting("cpu", 0.0, None, 3)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads wait for each other while other tests use the processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Of an image of the size in NETWORKS; an output of a detector has 8400 anchors for 3 × 85 values.
OUTPUTS = {"S3D": (400,), "U-Net-3D": (3, 128, 128, 112), "YOLOv5s": (255, 8400), "PSPNet": (150, 60, 60)}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_has_the_published_number_of_weights(name: str) -> None:
    with torch.device("meta"):
        net, x = NETWORKS[name].make(), torch.empty(NETWORKS[name].input("cpu", 1.0))
        assert net(x).shape[1:] == OUTPUTS.get(name, (1000,))
    weights = sum(p.numel() for p in net.parameters())
    # A PSPNet has a ResNet-50 without its last layer, and the head of its paper.
    trunk = 25_557_032 - 2049 * 1000
    head = 4 * (2048 * 512 + 2 * 512) + 4096 * 512 * 9 + 2 * 512 + 513 * 150
    assert weights == (NETWORKS[name].parameters or trunk + head)


def weights_after_a_step(name: str) -> list[Any]:
    run = model_training.Training(NETWORKS[name], SMALLEST)
    before = [weight.clone() for weight in run.net.parameters()]
    run.step()
    after = list(run.net.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return after


TRAINED = [
    name for name in NETWORKS if name != "VGG-16"
]  # it has 138 million weights, and no other kind of pool


@pytest.mark.parametrize("name", fast_if(lambda name: name in ("S3D", "YOLOv5s"), TRAINED))
def test_a_step_gives_the_same_weights_with_our_gradients(name: str) -> None:
    plain = weights_after_a_step(name)
    with patch():
        patched = weights_after_a_step(name)
    assert all(map(torch.equal, plain, patched))


def small() -> Any:
    layers = [networks._conv(3, 5), torch.nn.MaxPool2d(3, 2, 1), torch.nn.AvgPool2d(2), networks._head(5, 7)]
    return torch.nn.Sequential(*layers)


def random() -> Any:
    net = small()
    torch.nn.init.constant_(net[-1][-1].bias, next(counted))
    return net


counted = count()
ONE = Network(small, (3, 32, 32), {"cpu": 2}, 11, None)


class Here:
    """A worker of a variant that is no process."""

    def __init__(self, _: int, __: Any, initializer: Any, initargs: tuple[str, int]) -> None:
        self.variant = model_training.VARIANTS[initargs[0]]
        self.trainings: list[Any] = []

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        result: Future[Any] = Future()
        with patch(**self.variant) if self.variant is not None else nullcontext():
            model_training.trainings[:] = self.trainings
            result.set_result(function(*arguments))
            self.trainings = list(model_training.trainings)
        return result


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "NETWORKS", {"one": ONE, "two": ONE})
    monkeypatch.setattr(model_training, "NETWORKS", networks.NETWORKS)
    monkeypatch.setattr(model_training, "ProcessPoolExecutor", Here)


def bench(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", "--rounds", "3", "--threads", "1", "--models", *arguments])


@pytest.mark.usefixtures("few")
def test_json_has_every_model_and_variant() -> None:
    run = bench("--json", "--scale", "0.5")
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert [row["model"] for row in told["models"]] == ["one", "two"]
    variants = {"plain", "patch()", "patch(forward=True)"}
    for row in told["models"]:
        assert row["input"] == [2, 3, 16, 16]
        assert row["seconds"].keys() == row["repeats"].keys() == variants
        assert min(row["seconds"].values()) > 0
        assert all(row["repeats"].values())


@pytest.mark.usefixtures("few")
def test_names_choose_networks_and_unknown_ones_are_named() -> None:
    run = bench("two", "--json")
    assert [row["model"] for row in json.loads(run.stdout)["models"]] == ["two"]
    run = bench("two,three")
    assert run.exit_code == 2
    assert "--models has 'three'; it must be names of one, two, joined by commas" in run.stderr


@pytest.mark.usefixtures("few")
def test_the_command_says_how_busy_the_machine_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_training, "watch_other_load", lambda: lambda: 0.42)
    assert "Other programs took 42% to 42% of the processors." in bench("one").stdout


@pytest.mark.usefixtures("few")
def test_a_training_that_does_not_repeat_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(networks.NETWORKS, "one", replace(ONE, make=random))
    run = bench("one")
    assert run.exit_code == 1
    assert "one, patch(): two trainings from the same seed gave different weights" in run.stderr
    assert "plain:" not in run.stderr
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("one"))
    assert line.split()[-2:] == ["no", "no"]


def computes_ours() -> bool:
    """Whether a compiled step in this process calls our gradient."""
    model_training.COMPILE["aot"] = {"backend": "aot_eager"}
    assert model_training.prepare(ONE, Setting("cpu", 1.0, "aot", 3))
    with torch.profiler.profile() as seen:
        model_training.trainings[0].step()
    return any("pooltide::max_pool2d_backward" in event.key for event in seen.key_averages())


@pytest.mark.slow
def test_each_variant_has_a_process_with_its_patch() -> None:
    workers = [model_training.worker(variant, 1) for variant in model_training.VARIANTS]
    found = [worker.submit(computes_ours) for worker in workers]
    assert [one.result() for one in found] == [False, True, True]
    assert not is_patched()
    for worker in workers:
        worker.shutdown()


def test_the_modes_of_the_option_are_those_of_the_training() -> None:
    (option,) = (one for one in options.command.params if one.name == "compiled")
    assert list(option.type.choices) == list(model_training.COMPILE)
