"""The lock on a directory of golden data, which one program at a time may write."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..writing import why
from .manifest import ManifestError

_PATIENCE = 3.0  # seconds to wait for the lock: workers of a killed program hold it for a moment


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Make and lock the directory: two writers of one manifest would lose lines of each other.

    Nothing stays of a directory that was made here if nothing was written to it.

    ManifestError: the directory can't be made, or another program holds the lock.
    """
    made = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        directory = os.open(output, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ManifestError(f"{output}: can't be made: {why(error)}") from None
    try:
        _lock(output, directory)
        yield
    finally:
        os.close(directory)
        if made:
            with suppress(OSError):  # it is not empty
                output.rmdir()


def _lock(output: Path, directory: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                text = "another pooltide golden writes there; wait for it, or give another --output"
                raise ManifestError(f"{output}: {text}") from None
            time.sleep(0.1)
        except OSError:  # a file system without locks
            return None
