"""From a kernel's source to a kernel that can be launched.

    compiled(source, device) -> Kernel     compiles at most once per machine, loads once per process

Every reason why there is no kernel is a `NoCompiler` with a sentence.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock

from ..source import Source, header_texts, headers, program
from . import code_cache, nvrtc, shipped
from .driver import Kernel, NoCompiler, device_facts, driver_version, load_kernel

__all__ = ["Kernel", "NoCompiler", "Source", "code_for", "compiled", "loaded", "ready", "report"]
_kernels: dict[tuple[Source, int], Kernel] = {}
_locks: dict[tuple[Source, int], Lock] = {}  # of kernels that are being compiled
_lock = Lock()


def ready(source: Source, device: int) -> Kernel | None:
    """The kernel if this process has loaded it."""
    return _kernels.get((source, device))


def loaded() -> int:
    """The number of kernels that this process has loaded."""
    return len(_kernels)


def compiled(source: Source, device: int) -> Kernel:
    """The kernel: loaded before, or compiled now. A second thread that wants the same kernel waits."""
    with _lock:
        lock = _locks.setdefault((source, device), Lock())
    with lock:
        found = _kernels.get((source, device))
        if found is None:
            found = _kernels[source, device] = _load(source, device)
    with _lock:
        _locks.pop((source, device), None)
    return found


def _load(source: Source, device: int) -> Kernel:
    capability = device_facts(device).capability
    if code := shipped.load(source, capability):
        with suppress(NoCompiler):  # the driver may be older than this code
            return load_kernel(source, device, code)
    return load_kernel(source, device, code_for(source, capability))


def code_for(source: Source, capability: int) -> bytes:
    """Machine code, or PTX, for devices of a compute capability such as 90."""
    library = nvrtc.library()
    text, target = program(source), nvrtc.target(library, capability)
    version = ".".join(map(str, library.version))
    facts = (version, target, str(driver_version()), *nvrtc.OPTIONS)
    name = code_cache.key(text, header_texts(), *facts)
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
