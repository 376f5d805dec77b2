"""The manifest of golden data: DIR/manifest.jsonl has a header line, then a line for each finished case.

The header has the sha256 of the lines, so that a million of them are checked in seconds. Only where it is
wrong, every line is checked, to say which one was changed; manifest_entry.py says what a line must have.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .. import __version__
from ..writing import why, write_own
from .cases import LONGEST
from .manifest_entry import MANIFEST, SHA256, checked, entry_of, short
from .pack import SUFFIX, Pack, PackError
from .plain_files import Source, opened
from .shard import Shard, read_shard

_MOST_CHECKED = 20_000  # lines, in a few seconds
_NAME = re.compile(rb'\{"name": "([A-Za-z0-9_][A-Za-z0-9._-]{0,199})", "line": ([1-9][0-9]{0,18}), ')
_NO_VERSIONS = frozenset({"complete", "shard", "list_sha256", "left_out"})  # of the first line


class ManifestError(ValueError):
    """A manifest that `pooltide golden` can't have written."""


@dataclass(slots=True)
class Manifest:
    """An index of a manifest: where the line of each case begins. Entries are read when they are needed.

    `complete` is false while `pooltide golden` runs, or after it was interrupted. The lines of a complete
    manifest have the sha256 of its first line, so they are what `pooltide golden` wrote.
    """

    path: Path  # of a pack: of the file that has all
    offsets: dict[str, int] = field(default_factory=dict)
    complete: bool = False
    shard: Shard | None = None
    versions: dict[str, str] = field(default_factory=dict)
    digest: str = ""  # of its lines, once they were read
    list_sha256: str = ""  # of a shard: of the whole list of cases
    left_out: int = 0  # cases of the list, or of the shard, that could not be made
    pack: Pack | None = None  # that has the manifest and all files

    @property
    def source(self) -> Source:
        """The manifest itself."""
        return self.path if self.pack is None else self.pack.manifest

    def file(self, name: str, file: str) -> Source:
        """A file of a case. PackError: the pack is damaged."""
        return self.path.parent / name / file if self.pack is None else self.pack.file(name, file)

    def __len__(self) -> int:
        return len(self.offsets)

    def __contains__(self, name: object) -> bool:
        return name in self.offsets

    def get(self, name: str) -> dict[str, Any] | None:
        """The entry of a case; None if there is none, or a wrong one."""
        if name not in self.offsets:
            return None
        with opened(self.source) as file:
            file.seek(self.offsets[name])
            line = file.readline(LONGEST)
        try:
            return _named(name, line)
        except ValueError:
            return None

    def entries(
        self, chosen: Callable[[int, str], bool] = lambda place, name: True
    ) -> Iterator[dict[str, Any]]:
        """The entries that are `chosen` by place and name, in the order of a complete manifest.

        Whoever changes a line can write the right sha256 too, so each line is checked before it is used.
        ManifestError: one is wrong.
        """
        with opened(self.source) as file:
            for place, (name, offset) in enumerate(self.offsets.items()):
                if not chosen(place, name):
                    continue
                file.seek(offset)
                try:
                    yield _named(name, file.readline(LONGEST))
                except ValueError as error:
                    raise ManifestError(f"{self.source}, case {name}: {str(error)[:200]}") from None

    def add(self, entry: Mapping[str, Any], file: BinaryIO) -> None:
        """Append an entry to the manifest, which `file` has open for appending."""
        at = file.seek(0, 2)
        file.write(_line(entry))
        file.flush()
        self.offsets[entry["name"]] = at  # after the line is whole: the disk may be full


def _named(name: str, line: bytes) -> dict[str, Any]:
    """The entry in a line, which must be that of the case `name`. ValueError: it is another, or wrong."""
    entry = checked(entry_of(line))
    if entry["name"] != name:
        raise ValueError(f"name is {entry['name']}; the line begins with {name}")
    return entry


def is_copy(directory: Path, manifest: Manifest) -> bool:
    """Whether a directory has golden data of the same versions: a copy of these, a shard, or the whole."""
    try:
        with opened(directory / MANIFEST) as file, opened(manifest.source) as own:
            head = entry_of(file.readline(LONGEST))
            if any(head.get(key) != value for key, value in manifest.versions.items()):
                return False
            for line in iter(lambda: file.readline(LONGEST), b""):
                if (match := _NAME.match(line)) and match[1].decode() in manifest:
                    own.seek(manifest.offsets[match[1].decode()])
                    return line == own.readline(LONGEST)
    except (OSError, ValueError):
        pass
    return False


def is_pack(path: Path) -> bool:
    """Whether the path names a pack of golden data."""
    return path.suffix == SUFFIX and not path.is_dir()


def read_manifest(directory: Path, *, unfinished: bool = False) -> Manifest:
    """The index of the manifest of a directory or a pack.

    ManifestError: `pooltide golden` did not write the file so.

    With `unfinished`, lines may be missing, and a last line that was cut short is ignored. A million cases
    take seconds: only where the sha256 of the lines is wrong, the first lines are checked one by one.
    """
    try:
        pack = Pack(directory, MANIFEST) if is_pack(directory) else None
    except PackError as error:
        raise ManifestError(str(error)) from None
    path = directory / MANIFEST if pack is None else directory
    try:
        with opened(pack.manifest if pack else path) as file:
            manifest, digest = _index(path, file, unfinished)
            manifest.digest, manifest.pack = digest, pack
            if not manifest.complete or digest == manifest.versions.pop("sha256", None):
                return manifest
            file.seek(0)
            for number, _, line in islice(_numbered(path, file), 1, _MOST_CHECKED):
                if line.endswith(b"\n") or not unfinished:
                    with _located(path, number):
                        checked(entry_of(line))
    except OSError as error:
        raise ManifestError(f"{path}: can't be read: {why(error)}") from None
    if not unfinished:
        raise ManifestError(f"{path}: the lines were changed after they were made: they have another sha256")
    manifest.complete = False
    return manifest


def _index(path: Path, file: BinaryIO, unfinished: bool) -> tuple[Manifest, str]:
    """The index of an open manifest, and the sha256 of its lines after the first."""
    manifest = Manifest(path)
    digest = hashlib.sha256()
    for number, offset, line in _numbered(path, file):
        if number == 1 and _NAME.match(line) is None:
            with _located(path, number):
                _read_head(manifest, entry_of(line))
            continue
        digest.update(line)
        with _located(path, number):
            if (match := _NAME.match(line)) and line.endswith(b"}\n"):
                name = match[1].decode()
            elif not unfinished or line.endswith(b"\n"):
                name = checked(entry_of(line))["name"]
            else:
                continue
            if name in manifest.offsets and not unfinished:
                raise ValueError(f"name is {name}, which a line before has; each case may be there once")
            manifest.offsets[name] = offset
    return manifest, digest.hexdigest()


def _numbered(path: Path, file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """The lines of a file that are not empty: number, offset and content."""
    offset = 0
    for number, line in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), 1):
        if len(line) > LONGEST:
            raise ManifestError(f"{path}, line {number}: the line has more than {LONGEST} bytes")
        if line.strip():
            yield number, offset, line
        offset += len(line)


@contextmanager
def _located(path: Path, number: int) -> Iterator[None]:
    """A ValueError of a line becomes a ManifestError that names the line."""
    try:
        yield
    except ValueError as error:
        raise ManifestError(f"{path}, line {number}: {str(error)[:200]}") from None


def _read_head(manifest: Manifest, head: Mapping[str, Any]) -> None:
    complete, shard, digest = head.get("complete"), head.get("shard"), head.get("sha256")
    if type(complete) is not bool:
        raise ValueError(f"complete is {short(complete)}; it must be true or false")
    if shard is not None and not isinstance(shard, str):
        raise ValueError(f"shard is {short(shard)}; it must be text such as 3/16")
    if complete and (not isinstance(digest, str) or not SHA256.fullmatch(digest)):
        raise ValueError(f"sha256 is {short(digest)}; it must be 64 hexadecimal digits")
    of_list, left_out = head.get("list_sha256", ""), head.get("left_out", 0)
    if not isinstance(of_list, str) or type(left_out) is not int or left_out < 0:
        text = f"list_sha256 is {short(of_list)} and left_out {short(left_out)}"
        raise ValueError(f"{text}; they must be text, and a number of cases")
    manifest.complete, manifest.list_sha256, manifest.left_out = complete, of_list, left_out
    manifest.shard = None if shard is None else read_shard(shard)
    manifest.versions = {key: str(value) for key, value in head.items() if key not in _NO_VERSIONS}


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"


def versions() -> dict[str, str]:
    """What the bytes of golden data depend on, in addition to the cases."""
    return {"pooltide": __version__, "numpy": np.__version__, "byteorder": sys.byteorder}


def _head(**more: Any) -> bytes:
    return _line(versions() | {key: value for key, value in more.items() if value is not None})


def begin(manifest: Manifest, shard: Shard | None) -> None:
    """Mark the manifest as unfinished; its lines stay, also those that nobody reads any more."""
    manifest.complete, manifest.shard = False, shard
    _rewrite(manifest, _head(complete=False, shard=shard and str(shard)), list(manifest.offsets.items()))


def finish_manifest(manifest: Manifest, *, complete: bool) -> None:
    """Replace the whole manifest; its lines are in the order of the cases."""
    with manifest.path.open("rb") as file:
        numbered = [(_line_number(file, offset), name, offset) for name, offset in manifest.offsets.items()]
    order = [(name, offset) for _, name, offset in sorted(numbered)]
    del numbered
    digest = hashlib.sha256()
    for line in _lines_at(manifest.path, order):
        digest.update(line)
    ended: dict[str, Any] = {"sha256": digest.hexdigest()} if complete else {}
    ended |= {"list_sha256": manifest.list_sha256} if manifest.shard else {}
    ended |= {"left_out": manifest.left_out} if manifest.left_out else {}
    shard = manifest.shard and str(manifest.shard)
    _rewrite(manifest, _head(complete=complete, shard=shard, **ended), order)
    manifest.complete = complete


def _line_number(file: BinaryIO, offset: int) -> int:
    """The number of the line, in the file of cases, of the entry at an offset."""
    file.seek(offset)
    line = file.readline()
    match = _NAME.match(line)
    return int(match[2]) if match else int(entry_of(line)["line"])


def _rewrite(manifest: Manifest, head: bytes, order: Sequence[tuple[str, int]]) -> None:
    """Replace the file by a head and the lines at some offsets; the index then has the new offsets."""
    offsets: dict[str, int] = {}

    def parts() -> Iterator[bytes]:
        yield head
        at = len(head)
        for (name, _), line in zip(order, _lines_at(manifest.path, order), strict=True):
            offsets[name] = at
            at += len(line)
            yield line

    write_own(manifest.path, parts())
    manifest.offsets = offsets


def _lines_at(path: Path, order: Sequence[tuple[str, int]]) -> Iterator[bytes]:
    if not order:
        return
    with path.open("rb") as file:
        for _, offset in order:
            file.seek(offset)
            yield file.readline()
