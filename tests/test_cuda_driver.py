"""Launches by the CUDA driver, with a driver that only takes notes: what it is told, and when it isn't asked."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from pooltide.kernels.cuda import driver as cuda_driver

FUNCTION = 0x7000


class Notes:
    """A driver whose kernels have parameters of these sizes, and whose launches return these codes."""

    def __init__(self, sizes: list[int], codes: list[int] | None = None) -> None:
        self.sizes, self.codes = sizes, list(codes or [])
        self.launched: list[tuple[Any, ...]] = []

    def cuLaunchKernelEx(self, settings: int, function: int, places: int, extra: None) -> int:
        config = cuda_driver._Config.from_address(settings)
        found = []
        for i, size in enumerate(self.sizes):
            at = ctypes.c_void_p.from_address(places + 8 * i).value
            found.append((ctypes.c_int64 if size == 8 else ctypes.c_int32).from_address(at).value)
        told = tuple(config.grid), tuple(config.block), config.shared, config.stream or 0, tuple(found)
        self.launched.append((function, *told))
        return self.codes.pop(0) if self.codes else 0


def compiled(sizes: list[int], **metadata: Any) -> Any:
    """As Triton's, with a program that begins like its programs."""
    about = {"num_warps": 4, "shared": 1024, "num_ctas": 1, "global_scratch_size": 0} | metadata
    kinds = {8: ".u64 .ptr .global .align 16", 4: ".u32", 2: ".u16"}
    listed = ",\n".join(f"\t.param {kinds[size]} kernel_param_{i}" for i, size in enumerate(sizes))
    ptx = f".version 8.7\n.target sm_90a\n.visible .entry kernel(\n{listed}\n)\n.reqntid 128\n{{\n\tret;\n}}"
    about_it = SimpleNamespace(**about)
    return SimpleNamespace(metadata=about_it, function=FUNCTION, name="kernel", asm={"ptx": ptx})


def made(
    monkeypatch: Any, driver: Notes, arguments: list[int], bind: Any = lambda: None, **metadata: Any
) -> Any:
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    return cuda_driver.launcher(compiled(driver.sizes, **metadata), 77, 2, arguments, bind)


@pytest.mark.parametrize("hidden", [[], [8], [8, 8]])
def test_a_launch_tells_the_driver_all_parameters(monkeypatch: Any, hidden: list[int]) -> None:
    driver = Notes([8, 8, 4, 8, 4, *hidden])
    run = made(monkeypatch, driver, [-5, 2**40, 2**31 - 1])
    run(0, 11, 13)
    run(99, 2**47 + 16, 17)
    rest = (-5, 2**40, 2**31 - 1, *[0] * len(hidden))
    first, second = (FUNCTION, (77, 1, 1), (128, 1, 1), 1024), (2**47 + 16, 17)
    assert driver.launched == [(*first, 0, (11, 13, *rest)), (*first, 99, (*second, *rest))]


@pytest.mark.parametrize(
    ("sizes", "metadata"),
    [
        ([8, 8, 4], {}),  # fewer parameters than arguments
        ([8, 8, 4, 4, 4, 8], {}),  # another one, that is no pointer
        ([8, 8, 4, 4, 8, 8, 8], {}),  # more hidden ones than known
        ([8, 4, 8, 4], {}),  # a pointer that is none
        ([8, 8, 2, 4], {}),
        ([8, 8, 4, 4], {"num_ctas": 2}),
        ([8, 8, 4, 4], {"global_scratch_size": 128}),
        ([8, 8, 4, 4], {"launch_pdl": True}),
        ([8, 8, 4, 4], {"launch_cooperative_grid": True}),
    ],
)
def test_kernels_with_other_parameters_are_left_to_triton(
    monkeypatch: Any, sizes: list[int], metadata: Any
) -> None:
    assert made(monkeypatch, Notes(sizes), [1, 2], **metadata) is None


def test_an_argument_too_large_for_its_parameter_is_left_to_triton(monkeypatch: Any) -> None:
    assert made(monkeypatch, Notes([8, 8, 4]), [2**32]) is None


def test_no_driver_no_launcher(monkeypatch: Any) -> None:
    monkeypatch.setattr(cuda_driver, "_driver", lambda: None)
    assert cuda_driver.launcher(compiled([8, 8]), 1, 2, [], lambda: None) is None


def test_a_program_without_text_is_left_to_triton(monkeypatch: Any) -> None:
    monkeypatch.setattr(cuda_driver, "_driver", lambda: Notes([8, 8]))
    other = compiled([8, 8])
    other.asm.clear()
    assert cuda_driver.launcher(other, 1, 2, [], lambda: None) is None


def test_a_thread_without_a_context_gets_one_and_launches_again(monkeypatch: Any) -> None:
    driver, bound = Notes([8, 8], [201, 0]), []
    run = made(monkeypatch, driver, [], bind=lambda: bound.append(True))
    run(5, 1, 2)
    assert bound == [True]
    assert len(driver.launched) == 2


def test_what_the_driver_refuses_raises(monkeypatch: Any) -> None:
    run = made(monkeypatch, Notes([8, 8], [1]), [])
    with pytest.raises(RuntimeError, match="kernel: the CUDA driver refuses the launch with error 1"):
        run(5, 1, 2)


def test_threads_do_not_mix_their_arguments(monkeypatch: Any) -> None:
    driver = Notes([8, 8, 4])
    run = made(monkeypatch, driver, [3])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: [run(i, i, j) for j in range(200)], range(8)))
    assert len(driver.launched) == 1600
    assert all(stream == words[0] and words[2] == 3 for *_, stream, words in driver.launched)
