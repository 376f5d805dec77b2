"""Runs CUDA kernels on the host: the same source, compiled by g++ with AddressSanitizer and UBSan.

    simt.build(sources)                                             several kernels in one library, once
    simt.run(source, grid, block, shared, arguments, arrays)        writes into the arrays
    simt.start(script, *arguments)                                  a Python process in which `run` works

native/check/fibers.h says how threads run. AddressSanitizer must be loaded before all else, so `run` works only
in a process that `start` started. A fault of a kernel ends that process; the report names the `label` of the run.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from paths import NATIVE, SUPPORT
from pooltide.kernels.cuda.source import Argument, Source, headers, packed, program

CHECK = NATIVE / "check"
FLAGS = (
    "-std=c++17", "-Og", "-g1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ftrivial-auto-var-init=pattern",
    "-fno-sanitize=null,object-size,pointer-overflow",  # what these find AddressSanitizer finds, too
)  # fmt: skip
# With many kernels, compiling takes most of the time: checks of addresses as calls take less.
_MANY, _CALLS = 100, "--param=asan-instrumentation-with-call-threshold=0"
_COMPILERS = 2


class _Array(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("written", ctypes.c_uint64))


def why_not() -> str | None:
    """Why kernels can't run on this host; None where they can."""
    if os.uname().machine != "x86_64":
        return "fibers are written for x86-64"
    if shutil.which("g++") is None:
        return "there is no g++"
    return None if "/" in _asan() else "g++ has no AddressSanitizer"


def start(*arguments: str | Path, timeout: float = 1800) -> subprocess.CompletedProcess[str]:
    """Run a Python program in which kernels can run; the caller reads its status and output."""
    options = {"LD_PRELOAD": _asan(), "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    command = [sys.executable, *map(str, arguments)]
    path = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")]))
    env = os.environ | options | {"PYTHONPATH": path}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)


def run(
    source: Source,
    grid: int,
    block: int,
    shared: int,
    arguments: Sequence[Argument],
    arrays: Sequence[Any],
    seed: int = 1,
    label: str = "",
    texts: dict[str, str] | None = None,
) -> None:
    """Launch the kernel. `arrays` are NumPy arrays, one for each pointer; those it writes are not const.

    `texts` replaces the files of `device/`.
    """
    library, number = _kernel(source, texts)
    assert len(arrays) == source.pointers
    parameters = packed(source, arguments)
    given = (_Array * len(arrays))()
    for place, array, (kind, _) in zip(given, arrays, source.parameters, strict=False):
        first, last = array_bounds(array)
        place.data, place.bytes, place.written = first, last - first, not kind.startswith("const ")
    name = (label or source.entry).encode()
    size = ctypes.sizeof(parameters)
    library.simt_run(
        number, grid, block, ctypes.c_uint64(shared), ctypes.byref(parameters), ctypes.c_uint64(size),
        given, ctypes.c_uint64(len(arrays)), ctypes.c_uint64(seed), name,
    )  # fmt: skip


def array_bounds(array: Any) -> tuple[int, int]:
    """The addresses of a dense array's first byte and of the first byte after it."""
    first: int = array.__array_interface__["data"][0]
    return first, first + array.nbytes


_Key = tuple[Source, frozenset[tuple[str, str]]]
_built: dict[_Key, tuple[Any, int]] = {}


def build(sources: Iterable[Source], texts: dict[str, str] | None = None) -> None:
    """Compile these kernels, which are then there for `run`; those compiled before are taken from a cache."""
    wanted = list(dict.fromkeys(source for source in sources if _key(source, texts) not in _built))
    parts = [wanted[i::_COMPILERS] for i in range(_COMPILERS)]
    flags = (*FLAGS, _CALLS) if len(wanted) > _MANY else FLAGS
    running = [_Compilation(part, texts, flags) for part in parts if part]
    for compilation in running:
        library = compilation.library()
        for number, source in enumerate(compilation.sources):
            _built[_key(source, texts)] = library, number


def _key(source: Source, texts: dict[str, str] | None) -> _Key:
    return source, frozenset((texts or {}).items())


def _kernel(source: Source, texts: dict[str, str] | None) -> tuple[Any, int]:
    key = _key(source, texts)
    if key not in _built:
        build([source], texts)
    return _built[key]


class _Compilation:
    """One run of g++, which begins at once."""

    def __init__(self, sources: list[Source], texts: dict[str, str] | None, flags: Sequence[str]) -> None:
        self.sources = sources
        text = translation_unit(sources, headers() if texts is None else texts)
        key = hashlib.sha256("\0".join([text, _harness(), *flags]).encode()).hexdigest()[:32]
        folder = Path(tempfile.gettempdir()) / f"pooltide-simt-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self.path = folder / f"{key}.so"
        self.process: subprocess.Popen[str] | None = None
        if not self.path.exists():
            self.part = folder / f"{key}-{os.getpid()}.so"
            (folder / f"{key}.cpp").write_text(text, "utf-8")
            env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
            command = ["g++", *flags, f"-I{CHECK}", str(folder / f"{key}.cpp"), "-o", str(self.part)]
            self.process = subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )

    def library(self) -> ctypes.CDLL:
        if self.process is not None:
            said, _ = self.process.communicate()
            if self.process.returncode:
                raise RuntimeError(
                    f"g++ does not compile {[source.file for source in self.sources]}:\n{said}"
                )
            self.part.replace(self.path)
        return ctypes.CDLL(str(self.path))


def translation_unit(sources: Sequence[Source], texts: dict[str, str]) -> str:
    """The kernels, each in a namespace, and `simt_run`, which launches one of them by its number."""
    pieces = ['#include "simt.h"\n']
    for number, source in enumerate(sources):
        body = _flat(program(source), texts, set())
        entry = f"{source.entry}_{number}"  # functions with C linkage share one namespace
        names = [name for name in [source.entry, *_macros(body)] if name not in _macros(_harness())]
        dropped = "".join(f"#undef {name}\n" for name in names)
        pieces.append(
            f"namespace kernel_{number} {{\n#define {source.entry} {entry}\n{body}{dropped}"
            f"void call(const void* p) {{ {entry}(*static_cast<const Parameters*>(p)); }}\n}}\n"
        )
    bodies = ", ".join(f"kernel_{number}::call" for number in range(len(sources)))
    pieces.append(
        f"static const simt::Body bodies[] = {{{bodies}}};\n"
        'extern "C" void simt_run(unsigned body, unsigned grid, unsigned block, uint64_t shared, void* parameters,\n'
        "                         uint64_t bytes, const simt::Array* arrays, uint64_t count, uint64_t seed,\n"
        "                         const char* label) {\n"
        "  simt::run(bodies[body], {grid, block, shared}, parameters, bytes, arrays, count, seed, label);\n}\n"
    )
    return "".join(pieces)


def _macros(text: str) -> dict[str, None]:
    """The names that a text defines, in their order."""
    return dict.fromkeys(re.findall(r"^\s*#\s*define\s+(\w+)", text, re.M))


def _flat(text: str, texts: dict[str, str], seen: set[str]) -> str:
    """The text with its includes written out, each once: several kernels would share what `#pragma once` keeps."""

    def written_out(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        body = _flat(texts[name].replace("#pragma once", ""), texts, seen)
        return f'#line 1 "{name}"\n{body}\n'

    return re.sub(r'^#include "([^"]+)"$', written_out, text, flags=re.M)


@cache
def _harness() -> str:
    return "".join((CHECK / name).read_text("utf-8") for name in ("simt.h", "fibers.h"))


@cache
def _asan() -> str:
    command = ["g++", "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return str(Path(found).resolve()) if "/" in found else found
