"""The part of tools/pytorch_suite that runs inside pytest: enters a mode, and writes what each test did.

The environment says how: POOLTIDE_SUITE_MODE is the mode, POOLTIDE_SUITE_LOG the file to write, one JSON
object per line, POOLTIDE_SUITE_TESTS a file with a JSON list of the tests to run (all if it is missing), and
POOLTIDE_SUITE_SAMPLES how many samples of its operator a test gets (all if it is missing).
"""

from __future__ import annotations

import json
import os
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LOG = Path(os.environ["POOLTIDE_SUITE_LOG"])


def write(**line: Any) -> None:
    with LOG.open("a") as out:
        out.write(json.dumps(line) + "\n")


def enter(mode: str) -> None:
    """Puts our pools in the place of PyTorch's. Tests must be imported later: OpInfo keeps functions."""
    import torch
    import torch.nn.functional as F

    if mode == "plain":
        return
    import pooltide.torch as pt

    if mode != "functional":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a release that is not tested
            pt.patch(forward=mode == "forward")
        return
    for name in pt.functional.__all__:
        # torch.adaptive_max_pool1d always returns indices, so it is another function.
        for module in (F,) if name == "adaptive_max_pool1d" else (F, torch):
            if hasattr(module, name):
                setattr(module, name, getattr(pt.functional, name))


def draw_samples(most: int) -> None:
    """Gives each test of OpInfo at most this many samples, the same ones in every mode."""
    from torch.testing._internal.opinfo import core

    class Drawn(core.TrackedInputIter):  # type: ignore[misc]
        def __init__(self, inputs: Iterator[Any], kind: str, *rest: Any, **options: Any) -> None:
            if kind == "sample input":  # all inputs that must raise stay
                inputs = iter(drawn(list(inputs), most))
            super().__init__(inputs, kind, *rest, **options)

    core.TrackedInputIter = Drawn


def drawn(samples: list[Any], most: int) -> list[Any]:
    """Returns at most `most` of the samples, always the same ones, in their order."""
    chosen = random.Random(0).sample(range(len(samples)), min(most, len(samples)))
    return [samples[at] for at in sorted(chosen)]


def pytest_configure(config: pytest.Config) -> None:
    enter(os.environ["POOLTIDE_SUITE_MODE"])
    if most := os.environ.get("POOLTIDE_SUITE_SAMPLES"):
        draw_samples(int(most))
    try:
        from torch.testing._internal.common_utils import parse_cmd_line_args
    except ImportError:
        return
    sys.argv = sys.argv[:1]
    parse_cmd_line_args()  # sets globals that test_jit.py needs, and that only PyTorch's own runner would set


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if name := os.environ.get("POOLTIDE_SUITE_TESTS"):
        wanted = set(json.loads(Path(name).read_text()))
        items[:] = [item for item in items if item.nodeid in wanted]


def pytest_collection_finish(session: pytest.Session) -> None:
    write(collected=[item.nodeid for item in session.items])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        write(not_collected=_why(report))


def pytest_runtest_logstart(nodeid: str) -> None:
    write(running=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if (
        report.when == "call" or report.outcome != "passed"
    ):  # a subtest has its own report, with the same name
        write(test=report.nodeid, outcome=report.outcome, why=_why(report) if report.failed else "")


def pytest_sessionfinish(session: pytest.Session) -> None:
    write(finished=True)


def _why(report: Any) -> str:
    """Returns the lines of the report that say what went wrong."""
    text = report.longreprtext
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return " ".join(lines or text.splitlines()[-1:])[:600]
