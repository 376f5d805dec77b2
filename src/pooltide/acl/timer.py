"""A timer of the system that wakes the worker of a stream."""

from __future__ import annotations

import ctypes
import os
import struct
import time

# Settings of a timer. The first is longer than a program takes from phase two to its wait. It is set when the
# worker has nothing to do, and never changed before it is over: setting a timer takes as long as a small job.
SOON, AT_ONCE = (struct.pack("@qqqq", 0, 0, 0, nanoseconds) for nanoseconds in (200_000, 1))
_LIBC = ctypes.PyDLL(None, use_errno=True)  # its calls keep Python's lock, as they return at once


class Timer:
    """Wakes one thread after a while. The thread waits outside of Python, and costs no other thread time."""

    def __init__(self) -> None:
        self._file = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "no timer is left")

    def start(self, setting: bytes) -> None:
        """Set the time of the next wake-up, instead of one that was set before."""
        _LIBC.timerfd_settime(self._file, 0, setting, None)

    def wait(self) -> None:
        os.read(self._file, 8)

    def close(self) -> None:
        os.close(self._file)
