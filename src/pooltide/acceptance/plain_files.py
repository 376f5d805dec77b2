"""Opens files that others wrote: plain files only, and a path that no file can have is an OSError too."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """The open file. OSError: it can't be opened, or is no plain file: a pipe could wait forever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError:  # a null byte, or characters that no name of a file can have
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "the path is no plain file; it must be one", str(path))
        yield file
