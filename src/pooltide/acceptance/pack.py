"""A golden set in one file: an uncompressed tar archive that is read without unpacking it.

The manifest is the first member; then come the files of each case, in the order of the manifest. Owners and
dates are left out, so the bytes depend on the golden data alone. A reader walks forward from case to case,
so that memory does not grow with the number of members.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..writing import why, write_parts
from .plain_files import Member, opened

SUFFIX = ".tar"
_BLOCK = 512
_PIECE = 1 << 20


class PackError(ValueError):
    """A file that `golden --pack` did not write so, or a golden file that can't be packed."""


class Pack:
    """A pack that is read. PackError: it is damaged."""

    def __init__(self, path: Path, first: str) -> None:
        """`first` is the name that the first member must have."""
        self.path = path
        self._starts: dict[str, int] = {}  # offsets of the first headers of cases
        members = self._members(0)
        manifest = next(members, None)
        if manifest is None or manifest.name != first:
            raise PackError(f"{path}: the first member is not {first}; golden --pack writes it so")
        self.manifest = manifest
        self._next = _after(manifest)

    def file(self, name: str, file: str) -> Member:
        """A file of a case."""
        path = f"{name}/{file}"
        if name not in self._starts:
            self._walk(name)
        for member in self._members(self._starts[name]):
            if member.name == path:
                return member
            if not member.name.startswith(f"{name}/"):
                break
        raise PackError(f"{self.path}: the member {path} is missing; the manifest has it")

    def _walk(self, name: str) -> None:
        """Go forward to the first file of a case, and remember where the cases before it begin."""
        at = self._next
        for member in self._members(at):
            self._starts.setdefault(member.name.partition("/")[0], at)
            at = self._next = _after(member)
            if name in self._starts:
                return
        raise PackError(f"{self.path}: the case {name} has no members; the manifest has it")

    def _members(self, at: int) -> Iterator[Member]:
        """The members from an offset on."""
        try:
            with opened(self.path) as file:
                total = os.fstat(file.fileno()).st_size
                file.seek(at)
                while (info := self._header(file)) is not None:
                    member = Member(self.path, info.name, file.tell(), info.size)
                    if _after(member) > total:
                        raise PackError(f"{self.path}: the pack ends inside {member.name}")
                    yield member
                    file.seek(_after(member))
        except OSError as error:
            raise PackError(f"{self.path}: can't be read: {why(error)}") from None

    def _header(self, file: BinaryIO) -> tarfile.TarInfo | None:
        """The header at the position of the file, a long name included; None: the archive ends here."""
        info, long_name = self._block(file), ""
        if info is not None and info.type == tarfile.GNUTYPE_LONGNAME:
            if not 0 < info.size <= _BLOCK:
                raise PackError(f"{self.path}: a name of a member has {info.size} bytes; it must have fewer")
            long_name = file.read(_BLOCK)[: info.size - 1].decode("utf-8", "replace")
            info = self._block(file)
        if info is not None and (not info.isreg() or info.size < 0):
            raise PackError(f"{self.path}: {info.name} is no plain file; golden --pack writes plain files")
        if info is not None and long_name:
            info.name = long_name
        return info

    def _block(self, file: BinaryIO) -> tarfile.TarInfo | None:
        block = file.read(_BLOCK)
        if not block.strip(b"\0"):
            if len(block) < _BLOCK:
                raise PackError(f"{self.path}: the pack has no end; it was cut off")
            return None
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as error:
            raise PackError(f"{self.path}: a header of a member is damaged: {error}") from None


def _after(member: Member) -> int:
    """The offset of the next header."""
    return member.start + -(-member.size // _BLOCK) * _BLOCK


def write_pack(output: Path, manifest: Path, entries: Iterable[Mapping[str, Any]]) -> str:
    """Write the golden data of a manifest to one file; returns its sha256.

    PackError: a golden file was changed or can't be read. OSError: the pack can't be written.
    """
    digest = hashlib.sha256()

    def parts() -> Iterator[bytes]:
        for part in _archive(manifest, entries):
            digest.update(part)
            yield part

    write_parts(output, parts())
    return digest.hexdigest()


def _archive(manifest: Path, entries: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    yield from _packed(manifest, manifest.name, None)
    for entry in entries:
        for role, about in entry["files"].items():
            for suffix, sha256 in about["sha256"].items():
                name = f"{entry['name']}/{role}.{suffix}"
                yield from _packed(manifest.parent / name, name, sha256)
    yield bytes(2 * _BLOCK)


def _packed(path: Path, name: str, sha256: str | None) -> Iterator[bytes]:
    """The header and the content of a member, filled up to whole blocks."""
    info = tarfile.TarInfo(name)
    digest = hashlib.sha256()
    left = 0
    try:
        with opened(path) as file:
            info.size = left = os.fstat(file.fileno()).st_size
            yield info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")
            while left and (piece := file.read(min(_PIECE, left))):
                left -= len(piece)
                digest.update(piece)
                yield piece
    except FileNotFoundError:
        raise PackError(f"{path}: the file is missing; the manifest has it") from None
    if left or (sha256 is not None and digest.hexdigest() != sha256):
        raise PackError(f"{path}: the file was changed after it was made; its sha256 is not the manifest's")
    yield bytes(-info.size % _BLOCK)
