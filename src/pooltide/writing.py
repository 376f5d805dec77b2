"""Writes files that users name: a file is replaced completely, or stays as it was.

Files that this program names itself are never written through a link: `write_own` and `append_own`.
`write_whole` raises OSError; `why` turns an OSError into text for a message.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

Content = bytes | memoryview
_STANDARD = (1, 2)  # the output streams of this process


def write_whole(path: Path, *content: Content) -> None:
    """Write the file, or raise OSError and leave the old file as it was."""
    write_parts(path, content)


def write_parts(path: Path, content: Iterable[Content]) -> None:
    """Write the file in parts, which need not be in memory together, or raise OSError as `write_whole` does.

    A plain file is replaced in one step, so that no reader and no second writer sees a part of it.
    A link to a plain file stays, and its target is replaced. A device or a pipe is written to directly.
    Everything else (a directory, a socket, a dangling link) is refused.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise _refused("the link names a file that does not exist", path) from None
        return _replace(path, content)
    for stream in _STANDARD:
        if _same_file(stream, status):
            return _stream(stream, content)
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode) or stat.S_ISFIFO(status.st_mode):
        with path.open("wb", buffering=0) as device:
            return _write_all(device.fileno(), content)
    if not stat.S_ISREG(status.st_mode):
        raise _refused("the path is no plain file", path)
    target = path.resolve()
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return _replace(target, content, stat.S_IMODE(status.st_mode))


def check_file(path: Path) -> None:
    """Raise the OSError that `write_whole` would, as far as that is known before anything is written."""
    if not path.exists() and path.is_symlink():
        raise _refused("the link names a file that does not exist", path)
    if path.exists() and not path.is_file():
        if path.is_dir() or path.is_socket():
            raise _refused("the path is no plain file", path)
        return
    target = path.resolve()
    if path.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    check_directory(target.parent, exists=True)


def check_directory(path: Path, *, exists: bool = False) -> None:
    """Raise OSError if no file can be written to the directory. With `exists`, it must be there already."""
    there = path if exists else next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.exists():
        raise FileNotFoundError(errno.ENOENT, f"the directory {there} does not exist", str(path))
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{there} is no directory", str(path))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def write_own(path: Path, content: Iterable[Content]) -> None:
    """Write a file of this program as `write_parts` does, but replace a link instead of following it."""
    mode = None
    with suppress(FileNotFoundError):
        if stat.S_ISREG((before := path.lstat()).st_mode):
            mode = stat.S_IMODE(before.st_mode)
    _replace(path, content, mode)


def append_own(path: Path) -> BinaryIO:
    """Open a file of this program for appending; OSError for a link."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o666), "ab")


def why(error: OSError) -> str:
    """The reason of an OSError."""
    return error.strerror or str(error) or type(error).__name__


def _refused(text: str, path: Path) -> OSError:
    return OSError(errno.EINVAL, text, str(path))


def _replace(path: Path, content: Iterable[Content], mode: int | None = None) -> None:
    beside = path.with_name(f".pooltide-{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())  # some file systems report a full disk only here
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _same_file(stream: int, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(stream), status)
    except OSError:
        return False


def _stream(stream: int, content: Iterable[Content]) -> None:
    """Write to an open stream, such as /dev/stdout: opened again, it would have another file position."""
    for printed in (sys.stdout, sys.stderr):
        if printed is not None:
            printed.flush()
    _write_all(stream, content)


def _write_all(descriptor: int, content: Iterable[Content]) -> None:
    for part in content:
        rest = memoryview(part).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest) :]
