"""What `compare` is asked to compare, checked, and the rows that this means: one for each case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path

import click

from ..acceptance.comparison import Comparison, Pair, compare, pair_entry, pair_files
from ..acceptance.manifest import Manifest, ManifestError, is_copy, is_pack, read_manifest
from ..acceptance.measures import PRECISIONS
from ..acceptance.notation import parse
from ..acceptance.results import Results, results_in
from ..acceptance.shard import Shard
from ..acceptance.tensorfile import ENDINGS, TensorFile, TensorFileError
from ..acceptance.trial import Refused, problem_of
from ..acceptance.verdicts import Verdict
from ..acceptance.words import BY_SHORT_DTYPE
from ..operators.dtypes import DTYPES
from ..operators.pages import HOST

RAW_DTYPES = {short: dtype for short, dtype in BY_SHORT_DTYPE.items() if dtype.name in PRECISIONS}
Outcome = Comparison | TensorFileError


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    case: str
    outcome: Outcome
    line: int  # of the case in its file

    def verdict(self, standard: str) -> Verdict | None:
        """None: the case could not be compared."""
        return self.outcome.verdict(standard) if isinstance(self.outcome, Comparison) else None


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be compared: two files, or directories and perhaps a part of their cases."""

    actual: Path
    golden: Path
    third: Path | None
    level: str
    dtype: str | None
    case: str
    shard: Shard | None
    only: tuple[str, ...]

    @property
    def is_set(self) -> bool:
        """Whether golden data are compared: a directory or a pack, and not a file."""
        return self.golden.is_dir() or is_pack(self.golden)

    def has(self, place: int, name: str) -> bool:
        """Whether a case of the manifest is to be compared."""
        return (not self.only or name in self.only) and (self.shard is None or self.shard.has(place))


def manifest_of(request: Request) -> Manifest | None:
    """The manifest of a golden directory; None for two files. UsageError: the arguments do not fit."""
    kinds = {path.is_dir() for path in (request.actual, request.third) if path is not None}
    if kinds != {request.is_set}:
        raise click.UsageError("ACTUAL, GOLDEN and --third must all be files, or all directories")
    if not request.is_set:
        if request.only or request.shard:
            raise click.UsageError("--only and --shard are for directories; two files are one case")
        _check_names(request)
        _check_places(request)
        return None
    if request.dtype or request.case:
        raise click.UsageError("--dtype and --case are for two files; the manifest has them for directories")
    if request.only and request.shard:  # a case of another shard would leave nothing to compare
        raise click.UsageError("--only and --shard are two choices of cases; give one of them")
    manifest = read_manifest(request.golden)
    has_cases = len(manifest) or manifest.shard  # a shard may have none where there are few cases
    if not has_cases or not manifest.complete:
        what = "is not complete" if has_cases else "has no case"
        raise ManifestError(f"{manifest.source} {what}; start pooltide golden again")
    if unknown := [name for name in request.only if name not in manifest]:
        raise click.UsageError(f"--only is {unknown[0]!r}; it must be a name of {manifest.source}")
    _check_places(request)
    if is_copy(request.actual, manifest):
        text = f"{request.actual} has the manifest of {request.golden}: it is the golden data, or a copy"
        hint = "if its results are others, remove its manifest.jsonl"
        raise click.UsageError(f"{text}; a result must not be judged by itself; {hint}")
    return manifest


def _check_places(request: Request) -> None:
    """A result passes against itself, whatever it is. UsageError: two arguments are one place.

    The same file given twice is compared, because the command line shows it. A link does not show, and
    directories are often variables of a script.
    """
    for other, name in ((request.golden, "GOLDEN"), (request.third, "--third")):
        shown = name == "GOLDEN" and not request.is_set and request.actual == other
        if other is not None and not shown and request.actual.samefile(other):
            raise click.UsageError(
                f"ACTUAL and {name} are both {request.actual}; a result must not be judged by itself"
            )


def count_of(request: Request, manifest: Manifest | None) -> int:
    count = 1 if manifest is None else len(manifest)
    return len(request.only) or (request.shard.count(count) if request.shard else count)


def rows_of(request: Request, manifest: Manifest | None, results: Results | None) -> Iterator[Row]:
    """One row for each case. CasesError: the third results are a dump that can't be read."""
    if manifest is None or results is None:
        yield Row(request.actual.name, request.case, _outcome(partial(_pair, request), request.level), 1)
        return
    third = results_in(request.third) if request.third else None
    for entry in manifest.entries(request.has):
        pair = partial(pair_entry, entry, manifest, results, third)
        yield Row(entry["name"], entry["case"], _outcome(pair, request.level), entry["line"])


def _pair(request: Request) -> Pair:
    """Two files, or three."""
    known = DTYPES["FLOAT32"] if request.dtype == "hf32" else RAW_DTYPES.get(request.dtype or "")
    rounding = "HFLOAT32" if request.dtype == "hf32" else "keep"
    actual = request.actual
    pair = pair_files(actual.name, actual, request.golden, request.third, known, rounding)
    if request.case:
        _check_case(request.case, pair.actual, is_raw=actual.suffix == request.golden.suffix == ".bin")
    return replace(pair, case=request.case)


def _check_case(text: str, actual: TensorFile, *, is_raw: bool) -> None:
    """TensorFileError: the case has no result, or one of another shape; raw files have a size alone."""
    case = parse(text)
    try:
        problem_of(case)
    except Refused as error:
        raise TensorFileError(f"--case {text} is refused: {error}") from None
    shape = case.call(case.product or HOST).role("out").shape
    if actual.shape != ((prod(shape),) if is_raw else shape):
        raise TensorFileError(
            f"{actual.path}: the file has shape {actual.shape}; the result of --case {text} has {shape}"
        )


def _outcome(pair: Callable[[], Pair], level: str) -> Outcome:
    try:
        return compare(pair(), level)
    except TensorFileError as error:
        return error


def _check_names(request: Request) -> None:
    for path in filter(None, (request.actual, request.golden, request.third)):
        if path.suffix not in ENDINGS:
            text = f"the name ends in {path.suffix!r}; it must end in .npy, .bin or .pt"
            raise click.UsageError(f"{path}: {text}")
    if request.dtype is None and request.actual.suffix == request.golden.suffix == ".bin":
        raise click.UsageError(f"{request.actual}: a .bin file has no dtype; give it with --dtype")
