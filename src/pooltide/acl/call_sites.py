"""Takes a moment in a call: which lines of the program made the call?

Returns them as a `Site`, cheaply, and later in words. It must not touch what the call is about.

A site of a Python program has lines of Python. A site of a C program has return addresses, which the C
library collects at each call; `llvm-symbolizer` or `addr2line`, tools of the compilers, find their lines in
the debug information when a message needs them. A job has the site of the call that submitted it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from .state import STATE

Frame = int | tuple[str, int, str]  # a return address; or file, line and function
Site = tuple[Frame, ...]  # the innermost frame first
MAX_FRAMES = 4
_SHOWN = 3  # frames that a message lists
_SECONDS = 20  # that the search for a line may take
_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_EXAMPLES = f"{_PACKAGE}examples{os.sep}"  # programs, as those of users
_SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")  # whose frames a message leaves out


class _Thread(threading.local):
    job: Site | None = None  # the site of the job that this thread runs

    def __init__(self) -> None:
        self.buffer = (ctypes.c_uint64 * MAX_FRAMES)()  # another thread may run before it is read


_thread = _Thread()
_c_frames: list[Callable[[Any, int], int]] = []  # writes the addresses of this thread's C call


def read_c_frames(function: int) -> None:
    """Let `capture` call this function of the C library, which returns the number of frames."""
    _c_frames[:] = [ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)(function)]


def capture() -> Site | None:
    """Where the program made the call that this thread is in; None when checks are off."""
    if STATE.checks == "off":
        return None
    if _thread.job is not None:
        return _thread.job
    buffer = _thread.buffer
    if _c_frames and (count := _c_frames[0](buffer, MAX_FRAMES)):
        return tuple(buffer[:count])
    return _python_frames()


def _python_frames() -> Site:
    frame: FrameType | None = sys._getframe(2)
    frames: list[Frame] = []
    while frame is not None and len(frames) < _SHOWN:
        if not _is_ours(frame):
            frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        elif frames:  # this package called the program, as pooltide demo does
            break
        frame = frame.f_back
    return tuple(frames)


def _is_ours(frame: FrameType) -> bool:
    """Whether the code is of this package; its examples are programs. Methods of dataclasses have no file."""
    name = frame.f_code.co_filename
    if name.startswith(_PACKAGE):
        return not name.startswith(_EXAMPLES)
    return name == "<string>" and str(frame.f_globals.get("__name__")).startswith("pooltide.")


def enter_job(site: Site | None) -> Site | None:
    """Let what the thread reports belong to a job that this site submitted; returns the last such site."""
    before, _thread.job = _thread.job, site
    return before


def describe_site(site: Site | None) -> str:
    """ "prog.c:12 in main", with its callers; empty when nothing is known."""
    return ", called at ".join(lines(site))


def lines(site: Site | None) -> list[str]:
    """The frames in words, without those of the system's libraries, at most _SHOWN."""
    frames = site or ()
    words = [_c_line(frame) if isinstance(frame, int) else _python_line(*frame) for frame in frames]
    return [word for word in words if word][:_SHOWN]


def _python_line(file: str, line: int, function: str) -> str:
    return f"{_short(file)}:{line}" + ("" if function == "<module>" else f" in {function}")


def _short(path: str) -> str:
    """The path from the current directory, if the file is below it."""
    with contextlib.suppress(OSError, ValueError):
        relative = os.path.relpath(path)
        return path if relative.startswith("..") else relative
    return path


@cache
def _c_line(address: int) -> str:
    """One frame in words; empty for a frame of a system's library, or one outside of any file."""
    path, base = _module(address)
    if not path or path.startswith(_SYSTEM):
        return ""
    at = address - 1 - base  # inside the call, not after it
    function = place = "?"
    if (tool := _symbolizer()) is not None:
        clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
            run = subprocess.run(
                [*tool, "-e", path, hex(at)],
                env=clean,
                timeout=_SECONDS,
                check=True,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            function, place = run.stdout.decode(errors="replace").splitlines()[:2]
    if function == "_start":
        return ""
    file, _, line = place.split(" (")[0].rpartition(":")
    if file and line.isdigit() and int(line) and "?" not in file:
        return f"{_short(file)}:{line}" + ("" if "?" in function else f" in {function}")
    return f"{_short(path)}+{at:#x}" if "?" in function else f"{function} of {_short(path)}"


@cache
def _symbolizer() -> list[str] | None:
    """The command that prints the function and the line of an address; None when there is none.

    addr2line of binutils 2.40 takes some headers of GCC's debug information for the source file.
    """
    for name, flags in (("llvm-symbolizer", ["--output-style=GNU", "-f", "-C"]), ("addr2line", ["-f", "-C"])):
        if path := shutil.which(name):
            return [path, *flags]
    return None


def _module(address: int) -> tuple[str, int]:
    """The file that is mapped at an address, and the difference between its addresses and the file's."""
    base = 0
    with contextlib.suppress(OSError, ValueError), open("/proc/self/maps", encoding="utf-8") as maps:
        for entry in maps:
            span, _, offset, _, _, *path = entry.split(maxsplit=5)
            start, end = (int(word, 16) for word in span.split("-"))
            base = start if int(offset, 16) == 0 else base
            if start <= address < end and path and path[0].startswith("/"):
                file = path[0].rstrip("\n")
                return file, 0 if _is_fixed(file) else base
    return "", 0


def _is_fixed(path: str) -> bool:
    """Whether the file is a program that must be at the addresses that it names (not -pie)."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(18)[16:17] == b"\2"
    return False
