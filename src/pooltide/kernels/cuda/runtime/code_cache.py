"""Compiled kernels on disk, shared by all processes of a user.

    $POOLTIDE_CACHE, or $XDG_CACHE_HOME/pooltide, or ~/.cache/pooltide

A file is named by a hash of everything that its content depends on, and begins with a hash of its content:
a file that was cut or changed counts as missing. Files appear complete or not at all. Where the directory
can't be written, nothing is kept, and each process compiles for itself.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ....writing import write_own

MOST_BYTES = 256 << 20
_HASH = hashlib.sha256().digest_size


def folder() -> Path | None:
    """Where compiled kernels are kept; None where the user has no home."""
    if given := os.environ.get("POOLTIDE_CACHE"):
        return Path(given)
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "pooltide"
    try:
        return Path.home() / ".cache" / "pooltide"
    except RuntimeError:
        return None


def key(*parts: str) -> str:
    """A hash of the parts and of where each of them ends."""
    made = hashlib.sha256()
    for part in parts:
        data = part.encode()
        made.update(f"{len(data)} ".encode() + data)
    return made.hexdigest()


def load(name: str) -> bytes | None:
    """What was stored under the name; None where there is no such file or its content was damaged."""
    where = folder()
    if where is None:
        return None
    path = where / f"{name}.cubin"
    try:
        found = path.read_bytes()
    except OSError:
        return None
    code = found[_HASH:]
    if hashlib.sha256(code).digest() != found[:_HASH]:
        return None
    with suppress(OSError):
        os.utime(path, follow_symlinks=False)  # the least recently used files are deleted first
    return code


def store(name: str, code: bytes) -> None:
    where = folder()
    if where is None:
        return
    with suppress(OSError):
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_own(where / f"{name}.cubin", [hashlib.sha256(code).digest(), code])
        _shrink(where)


def _shrink(where: Path) -> None:
    """Delete the least recently used files until the others fit. Another process may delete them too."""
    files = []
    for path in where.glob("*.cubin"):
        with suppress(OSError):
            about = path.lstat()
            files.append((about.st_mtime_ns, about.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= MOST_BYTES:
            return
        with suppress(OSError):
            path.unlink()
        total -= size
