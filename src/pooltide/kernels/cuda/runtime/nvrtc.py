"""NVIDIA's run-time compiler: finding its library, and compiling a program with it.

PyTorch's CUDA wheels bring the library along. It needs no GPU, no CUDA toolkit and no header files.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .driver import NoCompiler, driver_version

# Results must have the same bits everywhere: a kernel that wants a fused multiply-add calls it by name.
OPTIONS = (
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--device-as-default-execution-space",
)


@dataclass(frozen=True, slots=True)
class Library:
    """NVRTC. `architectures` are the compute capabilities that it compiles for, such as 90."""

    path: str
    functions: Any
    version: tuple[int, int]
    architectures: tuple[int, ...]


def target(library: Library, capability: int) -> str:
    """The architecture to compile for: machine code, or PTX where the library is older than the device."""
    if capability in library.architectures:
        return f"sm_{capability}"
    older = [known for known in library.architectures if known < capability]
    if not older:
        raise NoCompiler(
            f"{library.path} compiles for compute capabilities {min(library.architectures)} and higher; "
            f"the device has {capability}."
        )
    return f"compute_{max(older)}"


def compile_program(
    library: Library, text: str, headers: dict[str, str], architecture: str, *more: str
) -> tuple[bytes, str]:
    """Machine code for sm_XY or PTX for compute_XY, and the compiler's log. `more` are further options."""
    functions = library.functions
    options = [option.encode() for option in (f"--gpu-architecture={architecture}", *OPTIONS, *more)]
    count = len(headers)
    texts = (ctypes.c_char_p * count)(*[header.encode() for header in headers.values()])
    names = (ctypes.c_char_p * count)(*[name.encode() for name in headers])
    handle = ctypes.c_void_p()
    status = functions.nvrtcCreateProgram(
        ctypes.byref(handle), text.encode(), b"pooltide.cu", count, texts, names
    )
    if status:
        raise NoCompiler(f"{library.path} creates no program: {_reason(functions, status)}.")
    try:
        given = (ctypes.c_char_p * len(options))(*options)
        status = functions.nvrtcCompileProgram(handle, len(options), given)
        log = _read(functions.nvrtcGetProgramLogSize, functions.nvrtcGetProgramLog, handle)
        said = log.rstrip(b"\0").decode(errors="replace")
        if status:
            reason = _first_error(said) or _reason(functions, status)
            raise NoCompiler(f"{library.path} does not compile the kernel: {reason}")
        kind = "CUBIN" if architecture.startswith("sm_") else "PTX"
        code = _read(getattr(functions, f"nvrtcGet{kind}Size"), getattr(functions, f"nvrtcGet{kind}"), handle)
        return code, said
    finally:
        functions.nvrtcDestroyProgram(ctypes.byref(handle))


@cache
def library() -> Library:
    """The first NVRTC that loads; those that the driver is too old for come last."""
    tried = []
    newest = driver_version() // 1000
    for path in sorted(dict.fromkeys(_candidates()), key=lambda path: _major(path) > newest):
        try:
            return _loaded(path)
        except (OSError, AttributeError) as error:
            tried.append(f"{path} ({error})" if "/" in path else path)
    raise _missing(tried)


def find_library() -> None:
    """Raises NoCompiler if there is no NVRTC. Does not load it, which takes a tenth of a second."""
    if not any("/" in path for path in _candidates()):
        library()


def _missing(tried: list[str]) -> NoCompiler:
    return NoCompiler(
        "NVIDIA's compiler library is not found; libnvrtc.so must be in the package nvidia-cuda-nvrtc, "
        f"beside PyTorch, on the system's library path or in /usr/local/cuda. Tried: {', '.join(tried)}."
    )


def _candidates() -> Iterator[str]:
    for name, below in (("nvidia", "*/lib"), ("torch", "lib")):
        spec = find_spec(name)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            yield from _libraries(Path(folder), below)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield from _libraries(Path(home), "lib64")
    yield from _libraries(Path("/usr/local"), "cuda*/lib64")
    if found := ctypes.util.find_library("nvrtc"):
        yield found
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def _libraries(folder: Path, below: str) -> list[str]:
    """PyTorch's wheels also name the library libnvrtc-HASH.so.12; the builtins are another library."""
    found = folder.glob(f"{below}/libnvrtc[.-]*so*")
    return sorted(str(path) for path in found if not re.search(r"builtins|\.alt\.", path.name))


def _major(path: str) -> int:
    found = re.search(r"\.so\.(\d+)", path)
    return int(found[1]) if found else 0


def _loaded(path: str) -> Library:
    functions = ctypes.CDLL(path)
    p, n = ctypes.c_void_p, ctypes.c_int
    functions.nvrtcCreateProgram.argtypes = (p, ctypes.c_char_p, ctypes.c_char_p, n, p, p)
    functions.nvrtcCompileProgram.argtypes = (p, n, p)
    functions.nvrtcDestroyProgram.argtypes = (p,)
    for what in ("ProgramLog", "CUBIN", "PTX"):
        getattr(functions, f"nvrtcGet{what}Size").argtypes = (p, p)
        getattr(functions, f"nvrtcGet{what}").argtypes = (p, p)
    functions.nvrtcGetErrorString.restype = ctypes.c_char_p
    major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    functions.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    builtins = Path(path).parent / f"libnvrtc-builtins.so.{major.value}.{minor.value}"
    if builtins.exists():  # NVRTC looks for it on the system's path only, unless it is loaded
        ctypes.CDLL(str(builtins))
    functions.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    known = (ctypes.c_int * count.value)()
    functions.nvrtcGetSupportedArchs(known)
    return Library(path, functions, (major.value, minor.value), tuple(known))


def _read(size: Callable[..., int], read: Callable[..., int], handle: ctypes.c_void_p) -> bytes:
    length = ctypes.c_size_t()
    size(handle, ctypes.byref(length))
    buffer = ctypes.create_string_buffer(length.value)
    read(handle, buffer)
    return buffer.raw


def _reason(functions: Any, status: int) -> str:
    text: bytes | None = functions.nvrtcGetErrorString(status)
    return (text or b"unknown error").decode()


def _first_error(log: str) -> str:
    return next((line.strip() for line in log.splitlines() if "error" in line), "")
