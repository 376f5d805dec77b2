"""Makes golden data: the inputs of each case and its result, computed in float64 and rounded once.

    DIR/manifest.jsonl                one line per finished case
    DIR/NAME/grad_output.npy .bin     and indices, and grad_input, the golden result

The files of a case are written to DIR/.partial. When all are there, their directory is renamed to DIR/NAME,
and then the manifest gets its line. So the files of each line are complete, and a second start continues.
DIR may have other files too. DIR/.partial/claimed.json names the directories that this program makes or
replaces; it never changes a directory that it did not make, or that has a file that it does not write.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import reference
from ..writing import why, write_whole
from .cases import NAME
from .inputs import TooLarge, draw
from .manifest import (
    MANIFEST,
    ROLES,
    SUFFIXES,
    ManifestError,
    expected,
    first_change,
    read_manifest,
    write_manifest,
)
from .notation import parse
from .tensorfile import npy_header, raw_bytes
from .trial import Refused, problem_of
from .words import NotationError

Array = NDArray[Any]
PARTIAL = ".partial"
CLAIMED = "claimed.json"
_FILES = {f"{role}.{suffix}" for role in ROLES for suffix in SUFFIXES}
_WORK = re.compile(r"(.+)\.[0-9]+(?:\.old)?")  # in PARTIAL: NAME.PID, a directory that is being written


@dataclass(frozen=True, slots=True)
class Task:
    """A case to compute: as text, which is cheap to send to a worker process."""

    number: int
    name: str
    case: str
    float64: bool = False  # write the unrounded result too


@dataclass(frozen=True, slots=True)
class Made:
    """The outcome of a task: an entry of the manifest, or an error."""

    number: int
    name: str
    case: str
    entry: Mapping[str, Any] | None
    error: str = ""


def make(task: Task, directory: Path, known: Mapping[str, Any] | None = None) -> Made:
    """Write the files of one case. The files of the `known` entry stay if they are unchanged."""
    made = partial(Made, task.number, task.name, task.case)
    if known is not None and _same(known, task) and first_change(directory, known) is None:
        return made(known)
    try:
        problem = problem_of(case := parse(task.case))
        grad, indices = draw(problem, case.data)
        total, golden = reference.oracle(problem, grad, indices)
    except (NotationError, Refused, TooLarge) as error:
        return made(None, str(error))
    except MemoryError:
        return made(None, "there was not enough memory")
    arrays = {"grad_output": grad, "indices": indices, "grad_input": golden}
    if task.float64:
        arrays["grad_input_float64"] = total
    entry = expected(task.name, task.number, task.case, task.float64)
    try:
        _write(directory, entry, arrays)
    except OSError as error:
        return made(None, f"{directory}: can't be written: {why(error)}")
    return made(entry)


def _same(entry: Mapping[str, Any], task: Task) -> bool:
    return entry["case"] == task.case and ("grad_input_float64" in entry["files"]) == task.float64


def _write(directory: Path, entry: dict[str, Any], arrays: Mapping[str, Array | None]) -> None:
    """Write the files of the entry and put their sha256 into it."""
    work = directory / PARTIAL / f"{entry['name']}.{os.getpid()}"
    work.mkdir(parents=True)
    for role, about in entry["files"].items():
        array = np.ascontiguousarray(arrays[role]).reshape(about["shape"])
        contents: dict[str, list[bytes | memoryview]] = {
            "npy": [npy_header(array), raw_bytes(array)],
            "bin": [raw_bytes(array)],
        }
        for suffix, content in contents.items():
            digest = hashlib.sha256()
            with (work / f"{role}.{suffix}").open("xb") as file:
                for part in content:
                    digest.update(part)
                    file.write(part)
            about["sha256"][suffix] = digest.hexdigest()
    place, old = directory / entry["name"], work.with_name(f"{work.name}.old")
    with suppress(FileNotFoundError):
        place.rename(old)
    work.rename(place)
    _remove(old)


def start(directory: Path) -> dict[str, dict[str, Any]]:
    """Make the directory; return its entries. ManifestError: another program made its files."""
    directory.mkdir(parents=True, exist_ok=True)
    manifest, work = directory / MANIFEST, directory / PARTIAL
    if os.path.lexists(work) and (work.is_symlink() or not work.is_dir() or not manifest.exists()):
        raise ManifestError(f"{work} is there, but {MANIFEST} is not; pooltide golden uses that name")
    return read_manifest(directory, broken_tail=True).entries if os.path.lexists(manifest) else {}


def claim(directory: Path, names: Iterable[str], entries: Collection[str]) -> dict[str, str]:
    """Record the names in CLAIMED. Returns, by name, why a directory must not be replaced."""
    ours = {*entries, *_claimed(directory)}
    foreign = {name: text for name in names if (text := _foreign(directory / name, name in ours))}
    (directory / PARTIAL).mkdir(exist_ok=True)
    claimed = sorted((ours | {*names}) - foreign.keys())
    write_whole(directory / PARTIAL / CLAIMED, json.dumps(claimed).encode())
    return foreign


def _foreign(place: Path, ours: bool) -> str:
    """Why the directory must not be replaced, or "". With `ours`, this program made it."""
    if not os.path.lexists(place):
        return ""
    must = "move it away, or give another --output"
    if place.is_symlink() or not place.is_dir():
        return f"{place} is there and is no directory; {must}"
    if not ours:
        return f"{place} is there and {MANIFEST} has no line for it; {must}"
    if strange := sorted({path.name for path in place.iterdir()} - _FILES):
        return f"{place / strange[0]} is there, and pooltide golden did not write it; {must}"
    return ""


def _claimed(directory: Path) -> list[str]:
    """The names that an interrupted run claimed."""
    matches = (_WORK.fullmatch(path.name) for path in (directory / PARTIAL).glob("*"))
    unfinished = [match[1] for match in matches if match]
    try:
        found = json.loads((directory / PARTIAL / CLAIMED).read_bytes())
    except (OSError, ValueError, RecursionError):
        return unfinished
    names = unfinished + (found if isinstance(found, list) else [])
    return [name for name in names if isinstance(name, str) and NAME.fullmatch(name)]


def clean(directory: Path) -> None:
    """Remove the directories that a killed process left in PARTIAL."""
    for work in (directory / PARTIAL).glob("*"):
        if _WORK.fullmatch(work.name):
            _remove(work)


def finish(directory: Path, entries: Mapping[str, Mapping[str, Any]], *, complete: bool) -> None:
    """Write the manifest in the order of the cases, and remove all work in progress."""
    write_manifest(directory, entries, complete=complete)
    clean(directory)
    for name in set(_claimed(directory)) - entries.keys():
        _remove(directory / name)
    with suppress(OSError):
        (directory / PARTIAL / CLAIMED).unlink(missing_ok=True)
        (directory / PARTIAL).rmdir()


def _remove(place: Path) -> None:
    """Remove the directory of a case, unless it has other files than those of this program."""
    with suppress(OSError):
        for name in _FILES:
            (place / name).unlink(missing_ok=True)
        place.rmdir()
