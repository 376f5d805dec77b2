"""Joins the shards of golden data to what one run would write; summaries.py joins results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..writing import append_own
from .golden import PARTIAL, clean, files_in, finish, foreign, put, start
from .manifest import Manifest, ManifestError, begin, read_manifest
from .manifest_entry import MANIFEST, first_change
from .plain_files import opened


def merge_golden(parts: Sequence[Path], output: Path) -> tuple[int, int]:
    """Join golden directories in another one; returns how many cases it has, and how many the parts left out.

    Started again, it continues.

    The files are hard links where the file system has them, and copies elsewhere; the parts stay as they are.
    ManifestError: the parts do not fit together, or a file was changed. OSError: the output can't be written.
    """
    manifests = [_complete(part) for part in parts]
    _check(parts, manifests)
    merged = start(output)
    if older := sorted(merged.offsets.keys() - {name for manifest in manifests for name in manifest.offsets}):
        text = f"{output} has the case {older[0]}, which no part has"
        raise ManifestError(f"{text}; give another --output, or an empty one")
    begin(merged, None)
    clean(output)
    with append_own(merged.path) as file:
        for part, manifest in zip(parts, manifests, strict=True):
            for entry in manifest.entries():
                if text := foreign(output / entry["name"], entry["name"] in merged):
                    raise ManifestError(text)
                if changed := first_change(files_in(part), entry):
                    raise ManifestError(changed)
                if merged.get(entry["name"]) == entry and first_change(files_in(output), entry) is None:
                    continue
                _link(part, output, entry)
                merged.add(entry, file)
    merged.left_out = sum(manifest.left_out for manifest in manifests)
    finish(output, merged, complete=True)
    return len(merged), merged.left_out


def _complete(part: Path) -> Manifest:
    manifest = read_manifest(part)
    if not manifest.complete:
        raise ManifestError(f"{part / MANIFEST} is not complete; start pooltide golden again")
    return manifest


def _check(parts: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    """Raise ManifestError unless the parts are disjoint, of one version, and all shards of one list."""
    first = manifests[0]
    seen: dict[str, Path] = {}
    shards: dict[int, Path] = {}
    for part, manifest in zip(parts, manifests, strict=True):
        for key, value in first.versions.items():
            if manifest.versions.get(key) != value:
                other = f"{manifest.versions.get(key)}; it must be {value}, as of {parts[0]}"
                raise ManifestError(f"{part}: {key} is {other}")
        if (manifest.shard is None) != (first.shard is None):
            raise ManifestError(f"{part} and {parts[0]}: one is a shard, the other is not; all must be alike")
        if (shard := manifest.shard) and first.shard:
            if shard.of != first.shard.of:
                raise ManifestError(f"{part} is shard {shard}; it must be one of {first.shard.of}")
            if shard.number in shards:
                raise ManifestError(f"{part} is shard {shard}, as {shards[shard.number]} is")
            shards[shard.number] = part
            if manifest.list_sha256 != first.list_sha256:
                text = f"{part} and {parts[0]} were made from different lists of cases"
                raise ManifestError(f"{text}; make all shards from one list, with the same options")
        for name in manifest.offsets:
            if name in seen:
                raise ManifestError(
                    f"{part} has the case {name}, as {seen[name]} has; each may be there once"
                )
            seen[name] = part
    if first.shard and (missing := sorted({*range(1, first.shard.of + 1)} - shards.keys())):
        names = ", ".join(f"{number}/{first.shard.of}" for number in missing[:8])
        raise ManifestError(f"shard {names} is missing; give all {first.shard.of}")


def _link(part: Path, output: Path, entry: Mapping[str, Any]) -> None:
    name = entry["name"]
    work = output / PARTIAL / f"{name}.{os.getpid()}"
    work.mkdir()
    for role, about in entry["files"].items():
        for suffix in about["sha256"]:
            _link_file(part / name / f"{role}.{suffix}", work / f"{role}.{suffix}")
    put(output, name, work)


def _link_file(source: Path, target: Path) -> None:
    """Make a hard link to a plain file; a copy of what a link leads to, or on a file system without links."""
    if not source.is_symlink():
        with suppress(OSError):
            os.link(source, target)
            return
    with opened(source) as file, target.open("xb") as copy:
        shutil.copyfileobj(file, copy)
