"""Makes golden data: the inputs of each case and its result, computed in float64 and rounded once.

    DIR/manifest.jsonl                one line per finished case
    DIR/NAME/grad_output.npy .bin     and indices or boxes, and grad_input, the golden result
    DIR/NAME/input.npy .bin           of a forward, and output, and the indices of maxima

The files of a case are written to DIR/.partial. When all are there, their directory is renamed to DIR/NAME,
and then the manifest gets its line. So the files of each line are complete, and a second start continues.
DIR may have other files too. DIR/.partial/claimed names the directories that this program makes or
replaces; it never changes a directory that it did not make, or that has a file that it does not write.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.pages import HOST
from ..writing import append_own, why
from .case_names import is_name
from .inputs import TooLarge, draw, placed, shaped
from .manifest import Manifest, ManifestError, finish_manifest, read_manifest
from .manifest_entry import MANIFEST, ROLES, SUFFIXES, expected, first_change, has_float64
from .notation import Case, parse
from .oracle import golden_result
from .plain_files import opened
from .supplied_values import SuppliedValues, load
from .tensorfile import TensorFileError, npy_header, raw_bytes
from .trial import Refused, checked_boxes, defect, dtype_of_boxes, problem_of
from .words import NotationError

Array = NDArray[Any]
PARTIAL = ".partial"
CLAIMED = "claimed"
_FILES = {f"{role}.{suffix}" for role in ROLES for suffix in SUFFIXES}
_WORK = re.compile(r"(.+)\.[0-9]+(?:\.old)?")  # in PARTIAL: NAME.PID, a directory that is being written


@dataclass(frozen=True, slots=True)
class Task:
    """A case to compute: as text, which is cheap to send to a worker process."""

    number: int
    name: str
    case: str
    float64: bool = False  # write the unrounded result too
    supplied: SuppliedValues | None = None  # the values; None: they are drawn


@dataclass(frozen=True, slots=True)
class Made:
    """The outcome of a task: an entry of the manifest, or an error."""

    number: int
    name: str
    case: str
    entry: Mapping[str, Any] | None
    error: str = ""
    kept: bool = False  # the files and the entry were there and unchanged
    full: bool = False  # the files can't be written, so no other task can succeed
    skipped: bool = False  # a pool that this program does not have


def make(task: Task, directory: Path, known: Mapping[str, Any] | None = None) -> Made:
    """Write the files of one case. The files of the `known` entry stay if they are unchanged."""
    made = partial(Made, task.number, task.name, task.case)
    if known is not None and _same(known, task) and first_change(files_in(directory), known) is None:
        # Its line may be another one now.
        return made({**known, "line": task.number}, kept=known["line"] == task.number)
    try:
        case = parse(task.case)
        arrays = _arrays(case, task.supplied)
    except (NotationError, Refused, TooLarge, TensorFileError) as error:
        return made(None, str(error))
    except MemoryError:
        return made(None, "there was not enough memory")
    except Exception as error:
        return made(None, defect(error))
    entry = expected(task.name, task.number, str(case.portable), task.float64)
    try:
        _write(directory, entry, arrays)
    except OSError as error:
        return made(None, f"{directory}: can't be written: {why(error)}", full=True)
    return made(entry)


def files_in(directory: Path) -> Callable[[str, str], Path]:
    """Where the files of a case are: a function of its name and the file's."""
    return lambda name, file: directory / name / file


def _arrays(case: Case, supplied: SuppliedValues | None) -> dict[str, Array | None]:
    """The inputs and results of a case by the names of their files."""
    problem, axes = problem_of(case), len(case.operator.axes)
    call = case.call(case.product or HOST)
    values = draw(problem, case.data) if supplied is None else load(case, supplied)
    source, indices, _ = placed(call, problem, values, lambda _: 0)
    # As the view has it: its cells may share memory.
    read = np.ascontiguousarray(shaped(problem, source, axes))
    places = None if indices is None else np.ascontiguousarray(shaped(problem, indices, axes))
    kind = dtype_of_boxes(call)
    boxes = checked_boxes(problem, call, case)
    golden = golden_result(problem, read, places, boxes)
    names = ("grad_output", "grad_input") if problem.gradient else ("input", "output")
    arrays = {"indices": places if golden.indices is None else golden.indices}
    arrays["boxes"] = None if boxes is None or kind is None else boxes.astype(kind.numpy)
    return arrays | {names[0]: read, names[1]: golden.rounded, f"{names[1]}_float64": golden.values}


def _same(entry: Mapping[str, Any], task: Task) -> bool:
    return entry["case"] == task.case and has_float64(entry) == task.float64


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
    put(directory, entry["name"], work)


def put(directory: Path, name: str, work: Path) -> None:
    """Make a finished directory in PARTIAL the directory of a case, in place of an older one."""
    place, old = directory / name, work.with_name(f"{work.name}.old")
    with append_own(directory / PARTIAL / CLAIMED) as claims:
        claims.write(f"{name}\n".encode())
    with suppress(FileNotFoundError):
        place.rename(old)
    work.rename(place)
    _remove(old)


def start(directory: Path) -> Manifest:
    """Make the directory; return its manifest. ManifestError: another program made its files."""
    directory.mkdir(parents=True, exist_ok=True)
    manifest, work = directory / MANIFEST, directory / PARTIAL
    if os.path.lexists(work) and (work.is_symlink() or not work.is_dir() or not manifest.exists()):
        raise ManifestError(f"{work} is there, but {MANIFEST} is not; pooltide golden uses that name")
    for path in (manifest, *work.glob("*")):
        if path.is_symlink():  # what it leads to is not ours, and would be changed
            raise ManifestError(f"{path} is a link; pooltide golden writes there: remove the link")
    known = read_manifest(directory, unfinished=True) if os.path.lexists(manifest) else Manifest(manifest)
    work.mkdir(exist_ok=True)
    return known


def foreign(place: Path, ours: bool) -> str:
    """Why the directory of a case must not be replaced, or "". With `ours`, this program made it."""
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


def claimed(directory: Path) -> set[str]:
    """The names whose directories an unfinished run made or replaced."""
    matches = (_WORK.fullmatch(path.name) for path in (directory / PARTIAL).glob("*"))
    names = [match[1] for match in matches if match]
    with suppress(OSError, UnicodeDecodeError), opened(directory / PARTIAL / CLAIMED) as file:
        names += file.read().decode().splitlines()
    return {name for name in names if is_name(name)}


def clean(directory: Path) -> None:
    """Remove the directories that a killed process left in PARTIAL."""
    for work in (directory / PARTIAL).glob("*"):
        if _WORK.fullmatch(work.name):
            _remove(work)


def prune(directory: Path, manifest: Manifest, names: Iterable[str]) -> None:
    """Take cases out of the manifest; `finish` then removes their directories, also after an interruption."""
    with append_own(directory / PARTIAL / CLAIMED) as claims:
        for name in names:
            claims.write(f"{name}\n".encode())
            del manifest.offsets[name]


def finish(directory: Path, manifest: Manifest, *, complete: bool) -> None:
    """Write the manifest in the order of the cases, and remove all work in progress."""
    finish_manifest(manifest, complete=complete)
    clean(directory)
    for name in claimed(directory) - manifest.offsets.keys():
        _remove(directory / name)
    with suppress(OSError):
        (directory / PARTIAL / CLAIMED).unlink(missing_ok=True)
        (directory / PARTIAL).rmdir()


def _remove(place: Path) -> None:
    """Remove the directory of a case, unless it is a link or has other files than those of this program."""
    with suppress(OSError):
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            names = os.listdir(folder)
            if not _FILES.issuperset(names):
                return
            for name in names:
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)
        place.rmdir()
