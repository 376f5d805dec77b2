"""Finds the results of cases in a directory: files with the names of cases, or those of a dump of msprobe.

A result in a dump is the file that dump.json names for the call, whatever other files are there: a dump that
is written again may leave older files behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .cases import Line
from .foreign import read_cases
from .manifest import Manifest
from .manifest_entry import MANIFEST, RESULTS, ROLES, writes_indices
from .msprobe_dump import DUMP, TENSORS, dumps, tensor_path
from .tensorfile import ENDINGS, TensorFileError, open_tensor

_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Results:
    directory: Path
    pools: Mapping[str, Line] | None  # of a dump, by name

    def path(self, name: str, result: str) -> Path:
        """The file of a case. TensorFileError: there is none."""
        if self.pools is not None:
            return self._dumped(self.pools.get(name), name, result)
        directory = self.directory
        flat = name if result in RESULTS else f"{name}.{result}"
        places = [directory / name / result, directory / flat]
        candidates = [Path(f"{place}{suffix}") for place in places for suffix in ENDINGS]
        # Also a link to nothing: the file in the other place may be an older result.
        paths = [path for path in candidates if os.path.lexists(path)]
        if other := next((path for path in paths[1:] if not _is_copy(paths[0], path)), None):
            raise TensorFileError(f"{paths[0]} and {other}: both are results for {name}; it must have one")
        if paths:
            return paths[0]
        where = f"{candidates[0]} or {candidates[len(ENDINGS)]}"
        raise self._missing(name, result, f"{where}, or with the ending {' or '.join(ENDINGS[1:])}")

    def _dumped(self, line: Line | None, name: str, result: str) -> Path:
        """The file that dump.json names: the first output of a call is its result, the second its indices."""
        number = 0 if result in RESULTS else 1
        files = line.outputs if line else ()
        if number < len(files) and files[number]:
            return Path(files[number])
        where = f"{tensor_path(self.directory, name)}.output.{number}.pt, or with the ending .npy"
        raise self._missing(name, result, f"{where}, and {DUMP} must name that file in data_name")

    def _missing(self, name: str, result: str, where: str) -> TensorFileError:
        what = "result" if result in RESULTS else result
        return TensorFileError(f"{self.directory}: no {what} for {name}; it must be in {where}")

    def extra(self, manifest: Manifest) -> Iterator[Path]:
        """The files, or the pools of a dump, that belong to no case."""
        if self.pools is not None:
            named = (line.name for line in self.pools.values() if not line.skipped)
            yield from (tensor_path(self.directory, name) for name in named if name not in manifest)
            return
        for path in sorted(self.directory.iterdir()):
            if path.name in manifest and path.is_dir():
                roles = (manifest.get(path.name) or {"files": ROLES})["files"]
                yield from (
                    f for f in sorted(path.iterdir()) if f.stem not in roles or f.suffix not in ENDINGS
                )
            elif path.name in (MANIFEST, ".partial"):
                continue
            elif path.suffix not in ENDINGS or not _is_of_case(path.stem, manifest):
                yield path


def results_in(directory: Path) -> Results:
    """The results in a directory. CasesError: it is a dump that can't be read."""
    if not dumps(directory):
        return Results(directory, {} if (directory / TENSORS).is_dir() else None)
    pools: dict[str, Line] = {}
    for line in read_cases(directory):
        pools.setdefault(line.name, line)  # a second line of one name is an error
    return Results(directory, pools)


def _is_copy(path: Path, other: Path) -> bool:
    """Whether `other` is the .bin file beside a .npy file, as in golden data, and has the same values."""
    if (path.suffix, other) != (".npy", path.with_suffix(".bin")) or not other.is_file():
        return False
    tensor = open_tensor(path)
    size = tensor.count * tensor.stored.itemsize
    with path.open("rb") as npy, other.open("rb") as raw:
        npy.seek(tensor.offset)
        if tensor.fortran or os.fstat(raw.fileno()).st_size != size:
            return False
        return all(npy.read(_PIECE) == part for part in iter(partial(raw.read, _PIECE), b""))


def _is_of_case(stem: str, manifest: Manifest) -> bool:
    """Whether a file beside the directories of cases has a result, or the indices that a case writes."""
    if stem in manifest:
        return True
    entry = manifest.get(stem.removesuffix(".indices"))
    return entry is not None and writes_indices(entry)
