"""Compiles files of native/ one by one, for tests that link them to programs of their own."""

from __future__ import annotations

import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paths import NATIVE

FLAGS = ("-std=c++17", "-g1", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", f"-I{NATIVE}")
SETS: dict[str, tuple[str, ...]] = {"baseline": ()}  # instruction sets, and their flags
if platform.machine() == "x86_64":
    SETS |= {
        "avx2": ("-mavx2", "-mf16c"),
        "avx512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mf16c"),
    }
LISTS = tuple(f"kernels/{path.stem}" for path in sorted((NATIVE / "kernels").glob("*.cpp")))
KERNELS = ("prepared", "threads/thread_pool")  # what the lists of kernels need


def compile_objects(
    where: Path, compiler: str, flags: tuple[str, ...], sources: tuple[str, ...], sets: tuple[str, ...] = ()
) -> list[str]:
    """Compiles `sources`, and the lists of kernels for each of `sets`; returns the objects."""

    def compile_one(name: str, source: str, more: tuple[str, ...]) -> str:
        target = str(where / f"{name}.o")
        command = [compiler, *FLAGS, *flags, *more, "-c", str(NATIVE / source), "-o", target]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
        return target

    jobs = [
        (f"{Path(name).name}_{isa}", f"{name}.cpp", (*SETS[isa], f"-DPOOLTIDE_ISA={isa}"))
        for isa in sets
        for name in LISTS
    ]
    jobs += [(Path(name).name, f"{name}.cpp", ()) for name in sources]
    with ThreadPoolExecutor(2) as workers:
        return list(workers.map(lambda job: compile_one(*job), jobs))
