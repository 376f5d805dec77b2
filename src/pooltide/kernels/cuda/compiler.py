"""From a kernel's source to a kernel that can be launched.

    compiled(source, device) -> Kernel     compiles at most once per machine, loads once per process

Every reason why there is no kernel is a `NoCompiler` with a sentence.
"""

from __future__ import annotations

from functools import cache
from threading import Lock

from . import code_cache, nvrtc
from .driver import Kernel, NoCompiler, device_facts, driver_version, load_kernel
from .source import Source, headers, program

__all__ = ["Kernel", "NoCompiler", "Source", "code_for", "compiled", "report"]
_kernels: dict[tuple[Source, int], Kernel] = {}
_lock = Lock()


def compiled(source: Source, device: int) -> Kernel:
    found = _kernels.get((source, device))
    if found is None:
        with _lock:  # a second thread that wants the same kernel waits for the first
            found = _kernels.get((source, device))
            if found is None:
                code = code_for(source, device_facts(device).capability)
                found = _kernels[source, device] = load_kernel(source, device, code)
    return found


def code_for(source: Source, capability: int) -> bytes:
    """Machine code, or PTX, for devices of a compute capability such as 90."""
    library = nvrtc.library()
    text, target = program(source), nvrtc.target(library, capability)
    version = ".".join(map(str, library.version))
    facts = (version, target, str(driver_version()), *nvrtc.OPTIONS)
    name = code_cache.key(text, _texts(), *facts)
    code = code_cache.load(name)
    if code is None:
        code, _ = nvrtc.compile_program(library, text, headers(), target)
        code_cache.store(name, code)
    return code


def report(source: Source, capability: int = 90) -> str:
    """What the assembler says of a kernel: registers, spills, shared memory. Needs no GPU."""
    library = nvrtc.library()
    target = nvrtc.target(library, capability)
    return nvrtc.compile_program(library, program(source), headers(), target, "--ptxas-options=-v")[1]


@cache
def _texts() -> str:
    return "\n".join(f"{name}\n{text}" for name, text in headers().items())
