"""Compiled kernels, general ones and those of regions, that a wheel brings: first calls need no compiler.

    python -m pooltide.kernels.cuda.runtime.shipped FILE   compiles them for NVRTC's architectures
    load(source, capability)                          the machine code of a general kernel, or None

`tools/wheels` puts the file into wheels. Without it, a general kernel is compiled once per machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from ..general import general
from ..regions import region_launches
from ..source import Source, header_texts, headers, program
from . import code_cache, nvrtc

SHIPPED = Path(__file__).parent / "general.zip"
OLDEST = 75  # the oldest compute capability with code of its own
_FILES = {general.FILE, *(f"{entry}.cu" for entry in region_launches.ARRAYS)}


def sources() -> Iterator[Source]:
    """Every kernel that wheels bring."""
    yield from general.sources()
    yield from region_launches.sources()


def load(source: Source, capability: int) -> bytes | None:
    if source.file not in _FILES:
        return None
    try:
        with ZipFile(SHIPPED) as archive:
            return archive.read(_name(source, f"sm_{capability}"))
    except (OSError, BadZipFile, KeyError):
        return None


def _name(source: Source, target: str) -> str:
    return code_cache.key(program(source), header_texts(), target, *nvrtc.OPTIONS)


def write(path: Path) -> None:
    library = nvrtc.library()
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for capability in library.architectures:
            if capability < OLDEST:
                continue
            target = f"sm_{capability}"
            for source in sources():
                code, _ = nvrtc.compile_program(library, program(source), headers(), target)
                archive.writestr(_name(source, target), code)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
