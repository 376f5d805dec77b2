"""Opens files that others wrote: plain files only, and a path that no file can have is an OSError too.

A `Member` is a part of a file, such as a file in a pack; `opened` opens it as if it were a file.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any


@dataclass(frozen=True, slots=True)
class Member:
    path: Path  # of the file that has it
    name: str
    start: int
    size: int

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def __str__(self) -> str:
        return f"{self.path}/{self.name}"


Source = Path | Member


@contextmanager
def opened(path: Source) -> Iterator[BufferedReader]:
    """The open file. OSError: it can't be opened, or is no plain file: a pipe could wait forever."""
    if isinstance(path, Member):
        with opened(path.path) as file:
            yield BufferedReader(_Part(file, path))
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError:  # a null byte, or characters that no name of a file can have
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "the path is no plain file; it must be one", str(path))
        yield file


class _Part(io.RawIOBase):
    """A part of an open file, as a file whose first byte is at 0."""

    def __init__(self, file: BufferedReader, member: Member) -> None:
        self._file, self._start, self._size, self._at = file, member.start, member.size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._at))
        self._file.seek(self._start + self._at)
        count = self._file.readinto(view[:count]) if count else 0
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at
