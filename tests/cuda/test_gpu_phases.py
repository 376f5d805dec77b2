"""The phases of the enumeration on a GPU, with the reference in place of the kernels: no GPU is needed."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fake_gpu
import gpu_paths
import gpu_phases
from cuda_problems import H200
from enumeration import arguments
from gpu_phases import Done, enumerate_on_gpu, pick, plan_part, selection, sources_in
from pooltide.kernels.cuda import launch
from pooltide.kernels.cuda.runtime import compiler, nvrtc
from pooltide.problem.problem import Problem

FEW = selection(3, 400, "adaptive_max1d")[:2] + selection(3, 400, "strided_avg2d")[:2]


class Reference:
    """Stands for PreparedLaunches."""

    def __init__(self, problem: Problem, layout: str, *_: Any) -> None:
        self.problem, self.layout = problem, layout

    def __call__(self, given: Any, indices: Any, out: Any) -> None:
        tensors = {"x": given, "grad": given, "indices": indices, "places": indices, "out": out}
        addresses = {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor is not None}
        fake_gpu.compute(self.problem, self.layout, addresses)


class WrongGradient(Reference):
    def __call__(self, given: Any, indices: Any, out: Any) -> None:
        super().__call__(given, indices, out)
        if self.problem.gradient:
            out[-1] ^= 1


class Outside(Reference):
    def __call__(self, given: Any, indices: Any, out: Any) -> None:
        super().__call__(given, indices, out)
        out.as_strided((1,), (1,), out.storage_offset() - 1)[0] = 0


class Faulty(Reference):
    def __call__(self, given: Any, indices: Any, out: Any) -> None:
        raise RuntimeError("an illegal memory access was encountered")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(gpu_paths, "DEVICE", "cpu")
    monkeypatch.setattr(launch, "PreparedLaunches", Reference)
    monkeypatch.setattr(compiler, "code_for", lambda source, capability: b"")
    return monkeypatch


def enumerated(most: int = 10**6, **more: Any) -> Done:
    with ThreadPoolExecutor(1) as pool:
        return enumerate_on_gpu(pool, 1, FEW, most, **more)


def test_all_geometries_run(gpu: pytest.MonkeyPatch) -> None:
    done = enumerated()
    assert (done.geometries, done.left, done.wrong) == (len(FEW), 0, [])
    assert {way.layout for way, _ in done.reached} == {"planes", "channels_last"}
    assert {way.small for way, _ in done.reached} == {False, True}
    assert "direct maximum" not in done.missing
    assert "scatter of volumes" in done.missing


def test_only_picked_kernels_run(gpu: pytest.MonkeyPatch) -> None:
    whole, part = enumerated(), enumerated(most=40)
    assert 0 < len(sources_in(variant for _, variant in part.reached)) <= 40
    assert all(part.reached[key] == whole.reached[key] for key in part.reached)


@pytest.mark.parametrize(
    ("stub", "said"),
    [
        (WrongGradient, r"_gradient.* cells are wrong"),
        (Outside, "bytes outside the result are written"),
        (Faulty, "Way.*RuntimeError: an illegal memory access"),
    ],
)
def test_faults_are_collected(gpu: pytest.MonkeyPatch, stub: type[Reference], said: str) -> None:
    gpu.setattr(launch, "PreparedLaunches", stub)
    done = enumerated()
    assert done.wrong
    assert all(re.search(said, line) for line in done.wrong)
    assert done.left == (len(FEW) - 1 if stub is Faulty else 0)


def test_kernels_that_do_not_compile_are_named_and_not_run(gpu: pytest.MonkeyPatch) -> None:
    def refuse(source: Any, capability: int) -> bytes:
        raise compiler.NoCompiler("an error")

    gpu.setattr(compiler, "code_for", refuse)
    done = enumerated(most=9)
    assert len(done.wrong) == len(pick(plan_part(FEW, H200), 9)) >= 8
    assert not done.reached


def test_that_time_ends(gpu: pytest.MonkeyPatch) -> None:
    done = enumerated(seconds=0)
    assert (done.geometries, done.left) == (0, len(FEW))


def test_every_way_has_a_variant_before_one_has_two() -> None:
    found = plan_part(FEW, H200)
    picked = pick(found, 2 * len(found))  # a few variants have two sources
    assert picked == pick(found, 2 * len(found))
    assert all(any(set(variant) <= set(picked) for variant in variants) for variants in found.values())


@pytest.mark.slow
def test_a_small_selection_needs_every_kernel() -> None:
    found = plan_part(selection(13, 4001), H200)
    assert not Done(reached=dict.fromkeys(((way, ()) for way in found), 1)).missing


@pytest.mark.parametrize(
    ("stub", "more", "status", "said"),
    [
        (Reference, ["--only", "adaptive_max1d"], 0, "every result has the expected bits (a GPU)"),
        (Reference, ["--only", "adaptive_max1d", "--compile"], 0, "50 of 50 kernels compiled\n"),
        (WrongGradient, ["--only", "adaptive_max1d"], 1, " faults (a GPU)"),
        (Reference, [], 1, "No geometry reached filled average, "),
    ],
)
def test_the_program(
    gpu: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stub: type[Reference],
    more: list[str],
    status: int,
    said: str,
) -> None:
    gpu.setattr(launch, "PreparedLaunches", stub)
    gpu.setattr(gpu_phases, "new_pool", lambda processes, driver: ThreadPoolExecutor(1))
    gpu.setattr(gpu_phases, "KINDS", ["adaptive_max1d"])
    gpu.setattr(gpu_phases, "begin_process", lambda driver: None)
    gpu.setattr(nvrtc, "library", lambda: SimpleNamespace(version=(13, 0)))
    gpu.setattr(torch.cuda, "is_available", lambda: True)
    gpu.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    given = arguments().parse_args(["--gpu", "--share", "3/1600", "--sources", "50", *more])
    assert gpu_phases.main(given) == status
    assert said in capsys.readouterr().out
