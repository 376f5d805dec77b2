"""Golden data: for each case its inputs and its result, computed in float64 and rounded once.

    DIR/manifest.jsonl                one line per finished case
    DIR/NAME/grad_output.npy .bin     and indices, and grad_input, the golden result

A case is written into DIR/.partial and its directory renamed when all of it is there; its line in the
manifest comes last. So what the manifest has is whole, and a second start goes on after it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import __version__
from .backends import reference
from .dtypes import DTYPES, DType, dtype_of
from .inputs import TooLarge, draw
from .notation import NotationError, parse
from .problem import Problem
from .tensorfile import npy_header, raw_bytes, write_whole
from .trial import Refused, problem_of

Array = NDArray[Any]
MANIFEST = "manifest.jsonl"
PARTIAL = ".partial"


class ManifestError(ValueError):
    """A manifest that can't be what golden wrote."""


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
    if known is not None and whole(directory, known):
        return Made(task.number, task.name, task.case, known)
    try:
        problem = problem_of(case := parse(task.case))
        grad, indices = draw(problem, case.data)
        total, golden = reference.oracle(problem, grad, indices)
    except (NotationError, Refused, TooLarge) as error:
        return Made(task.number, task.name, task.case, None, str(error))
    except MemoryError:
        return Made(task.number, task.name, task.case, None, "there was not enough memory")
    call = case.call(case.product or "host")
    arrays = {"grad_output": grad, "indices": indices, "grad_input": golden}
    if task.wide:
        arrays["grad_input_float64"] = total
    shapes = {"grad_output": call.role("grad_output").shape, "grad_input": call.role("grad_input").shape}
    shapes |= {"indices": shapes["grad_output"], "grad_input_float64": shapes["grad_input"]}
    try:
        files = _write(
            directory, task.name, {k: v.reshape(shapes[k]) for k, v in arrays.items() if v is not None}
        )
    except OSError as error:
        return Made(
            task.number, task.name, task.case, None, f"{directory}: can't be written: {error.strerror}"
        )
    return Made(task.number, task.name, task.case, _entry(task, problem, files))


def _entry(task: Task, problem: Problem, files: Mapping[str, Any]) -> dict[str, Any]:
    case = parse(task.case)
    return {
        "name": task.name,
        "line": task.number,
        "case": task.case,
        "seed": case.data.seed,
        "distribution": case.data.distribution,
        "input_shape": list(case.shape),
        "rounding": problem.rounding,
        "files": files,
    }


def _write(directory: Path, name: str, arrays: Mapping[str, Array]) -> dict[str, Any]:
    partial = directory / PARTIAL / f"{name}.{os.getpid()}"
    partial.mkdir(parents=True)
    files = {}
    for role, array in arrays.items():
        array = np.ascontiguousarray(array)
        contents: dict[str, list[bytes | memoryview]] = {
            "npy": [npy_header(array), raw_bytes(array)],
            "bin": [raw_bytes(array)],
        }
        digests = {}
        for suffix, content in contents.items():
            digest = hashlib.sha256()
            with (partial / f"{role}.{suffix}").open("wb") as file:
                for part in content:
                    digest.update(part)
                    file.write(part)
            digests[suffix] = digest.hexdigest()
        dtype = dtype_of(array.dtype)
        assert dtype is not None
        files[role] = {"shape": list(array.shape), "dtype": dtype.name, "sha256": digests}
    if (directory / name).exists():
        shutil.rmtree(directory / name)
    partial.rename(directory / name)
    return files


def whole(directory: Path, entry: Mapping[str, Any]) -> bool:
    """Whether every file of the entry is there with its sha256."""
    try:
        for role, about in entry["files"].items():
            for suffix, digest in about["sha256"].items():
                with (directory / entry["name"] / f"{role}.{suffix}").open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                        return False
    except OSError:
        return False
    return True


def read_manifest(directory: Path, *, broken_tail: bool = False) -> dict[str, dict[str, Any]]:
    """The entries by name. With `broken_tail`, a last line that was cut short is passed over."""
    path = directory / MANIFEST
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ManifestError(f"{path}: can't be read: {error.strerror}") from None
    entries: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = _checked(json.loads(line))
        except (ValueError, RecursionError) as error:
            if broken_tail and number == len(lines):
                continue
            raise ManifestError(f"{path}, line {number}: {str(error)[:200]}") from None
        if entry is not None:
            entries[entry["name"]] = entry
    return entries


def _checked(entry: Any) -> dict[str, Any] | None:
    """An entry with all that the readers rely on; None for the line about the manifest itself."""
    if not isinstance(entry, dict):
        raise ValueError(f"the line is JSON of {type(entry).__name__}; it must be an object")
    if "pooltide" in entry:
        return None
    for key, kind in {"name": str, "case": str, "rounding": str, "files": dict}.items():
        if not isinstance(entry.get(key), kind):
            raise ValueError(f"{key} is {str(entry.get(key))[:60]}; it must be {kind.__name__}")
    if entry["name"] in ("", ".", "..") or "/" in entry["name"] or "\0" in entry["name"]:
        raise ValueError(f"name is {entry['name'][:60]!r}; it must be the name of a directory")
    for role, about in entry["files"].items():
        shape = about.get("shape") if isinstance(about, dict) else None
        good = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        digests = about.get("sha256") if good else None
        if not isinstance(digests, dict) or about.get("dtype") not in DTYPES or "/" in role or "\0" in role:
            raise ValueError(f"files.{role[:60]} must have shape, dtype and sha256")
    if "grad_input" not in entry["files"]:
        raise ValueError("files has no grad_input; it must have")
    return entry


def file_dtype(entry: Mapping[str, Any], role: str) -> DType:
    return DTYPES[entry["files"][role]["dtype"]]


def file_shape(entry: Mapping[str, Any], role: str) -> tuple[int, ...]:
    return tuple(entry["files"][role]["shape"])


def head() -> str:
    return json.dumps({"pooltide": __version__, "numpy": np.__version__, "byteorder": sys.byteorder}) + "\n"


def manifest_lines(entries: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield head()
    for entry in sorted(entries.values(), key=lambda entry: (entry.get("line", 0), entry["name"])):
        yield json.dumps(entry, ensure_ascii=False) + "\n"


def finish(directory: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """The manifest in the order of the cases, and no remains of work in progress."""
    write_whole(directory / MANIFEST, "".join(manifest_lines(entries)).encode())
    shutil.rmtree(directory / PARTIAL, ignore_errors=True)
