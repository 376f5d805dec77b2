"""Golden data: for each case its inputs and its result, computed in float64 and rounded once.

    DIR/manifest.jsonl                one line per finished case
    DIR/NAME/grad_output.npy .bin     and indices, and grad_input, the golden result

A case is written into DIR/.partial and its directory renamed when all of it is there; its line in the
manifest comes last. So what the manifest has is whole, and a second start goes on after it.
DIR may hold other files too. DIR/.partial/claimed.json names the directories that golden makes or replaces;
a directory of another origin, or one with a file that golden does not write, is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import reference
from ..writing import why, write_whole
from .cases import NAME
from .inputs import TooLarge, draw
from .manifest import MANIFEST, ROLES, SUFFIXES, ManifestError, expected, read_manifest, whole, write_manifest
from .notation import NotationError, parse
from .tensorfile import npy_header, raw_bytes
from .trial import Refused, problem_of

Array = NDArray[Any]
PARTIAL = ".partial"
CLAIMED = "claimed.json"
_FILES = {f"{role}.{suffix}" for role in ROLES for suffix in SUFFIXES}
_WORK = re.compile(r"(.+)\.[0-9]+(?:\.old)?")  # in PARTIAL: a case's directory that a process works on


@dataclass(frozen=True, slots=True)
class Task:
    """A case on its way to a worker: text only, so that it costs nothing to send."""

    number: int
    name: str
    case: str
    wide: bool = False  # the float64 result too


@dataclass(frozen=True, slots=True)
class Made:
    number: int
    name: str
    case: str
    entry: Mapping[str, Any] | None  # the manifest's
    error: str = ""


def make(task: Task, directory: Path, known: Mapping[str, Any] | None = None) -> Made:
    """One case's files; those that `known` describes are kept if they are still what it says."""
    if known is not None and _same(known, task) and whole(directory, known):
        return Made(task.number, task.name, task.case, known)
    try:
        problem = problem_of(case := parse(task.case))
        grad, indices = draw(problem, case.data)
        total, golden = reference.oracle(problem, grad, indices)
    except (NotationError, Refused, TooLarge) as error:
        return Made(task.number, task.name, task.case, None, str(error))
    except MemoryError:
        return Made(task.number, task.name, task.case, None, "there was not enough memory")
    arrays = {"grad_output": grad, "indices": indices, "grad_input": golden}
    if task.wide:
        arrays["grad_input_float64"] = total
    entry = expected(task.name, task.number, task.case, task.wide)
    try:
        _write(directory, entry, arrays)
    except OSError as error:
        return Made(task.number, task.name, task.case, None, f"{directory}: can't be written: {why(error)}")
    return Made(task.number, task.name, task.case, entry)


def _same(entry: Mapping[str, Any], task: Task) -> bool:
    return entry["case"] == task.case and ("grad_input_float64" in entry["files"]) == task.wide


def _write(directory: Path, entry: dict[str, Any], arrays: Mapping[str, Array | None]) -> None:
    """Write the files of the entry and put their sha256 into it."""
    partial = directory / PARTIAL / f"{entry['name']}.{os.getpid()}"
    partial.mkdir(parents=True)
    for role, about in entry["files"].items():
        array = np.ascontiguousarray(arrays[role]).reshape(about["shape"])
        contents: dict[str, list[bytes | memoryview]] = {
            "npy": [npy_header(array), raw_bytes(array)],
            "bin": [raw_bytes(array)],
        }
        for suffix, content in contents.items():
            digest = hashlib.sha256()
            with (partial / f"{role}.{suffix}").open("xb") as file:
                for part in content:
                    digest.update(part)
                    file.write(part)
            about["sha256"][suffix] = digest.hexdigest()
    place, old = directory / entry["name"], partial.with_name(f"{partial.name}.old")
    with suppress(FileNotFoundError):
        place.rename(old)
    partial.rename(place)
    _remove(old)


def start(directory: Path) -> dict[str, dict[str, Any]]:
    """The entries of a directory that golden shall write to. ManifestError: the directory is not golden's."""
    directory.mkdir(parents=True, exist_ok=True)
    manifest, partial = directory / MANIFEST, directory / PARTIAL
    if os.path.lexists(partial) and (partial.is_symlink() or not partial.is_dir() or not manifest.exists()):
        raise ManifestError(f"{partial} is there, but {MANIFEST} is not; pooltide golden uses that name")
    return read_manifest(directory, broken_tail=True) if os.path.lexists(manifest) else {}


def claim(directory: Path, names: Iterable[str], entries: Collection[str]) -> dict[str, str]:
    """Note that the named directories are golden's; for those that are not, the sentence why."""
    own = {*entries, *_claimed(directory)}
    foreign = {name: text for name in names if (text := _foreign(directory / name, name in own))}
    (directory / PARTIAL).mkdir(exist_ok=True)
    claimed = sorted((own | {*names}) - foreign.keys())
    write_whole(directory / PARTIAL / CLAIMED, json.dumps(claimed).encode())
    return foreign


def _foreign(place: Path, own: bool) -> str:
    if not os.path.lexists(place):
        return ""
    must = "move it away, or give another --output"
    if place.is_symlink() or not place.is_dir():
        return f"{place} is there and is no directory; {must}"
    if not own:
        return f"{place} is there and {MANIFEST} has no line for it; {must}"
    if strange := sorted({path.name for path in place.iterdir()} - _FILES):
        return f"{place / strange[0]} is there, and pooltide golden did not write it; {must}"
    return ""


def _claimed(directory: Path) -> list[str]:
    """The names that an earlier start claimed and did not finish with."""
    worked_on = [
        match[1] for path in (directory / PARTIAL).glob("*") if (match := _WORK.fullmatch(path.name))
    ]
    try:
        found = json.loads((directory / PARTIAL / CLAIMED).read_bytes())
    except (OSError, ValueError, RecursionError):
        return worked_on
    names = worked_on + (found if isinstance(found, list) else [])
    return [name for name in names if isinstance(name, str) and NAME.fullmatch(name)]


def clean(directory: Path) -> None:
    """Remove what a process that was killed left in PARTIAL."""
    for work in (directory / PARTIAL).glob("*"):
        if _WORK.fullmatch(work.name):
            _remove(work)


def finish(directory: Path, entries: Mapping[str, Mapping[str, Any]], *, complete: bool) -> None:
    """The manifest in the order of the cases, and no remains of work in progress."""
    write_manifest(directory, entries, complete=complete)
    clean(directory)
    for name in set(_claimed(directory)) - entries.keys():
        _remove(directory / name)
    with suppress(OSError):
        (directory / PARTIAL / CLAIMED).unlink(missing_ok=True)
        (directory / PARTIAL).rmdir()


def _remove(place: Path) -> None:
    """Remove a case's directory with the files that golden writes; with others in it, it stays."""
    with suppress(OSError):
        for name in _FILES:
            (place / name).unlink(missing_ok=True)
        place.rmdir()
