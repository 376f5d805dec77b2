"""Results in files against golden ones, piece by piece: memory does not grow with the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from ..operators.dtypes import DTYPES, DType
from ..problem.problem import Problem
from .anatomy import LARGEST_PLANE, Anatomy, Array, Reader, dissect, piece_size
from .manifest import touched
from .notation import NotationError, parse
from .tensorfile import GoldenError, TensorFile, TensorFileError, open_tensor
from .trial import Refused, problem_of
from .verdicts import STANDARDS, Measures, Standard, Verdict, judge, measure_all, standard_of

_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Pair:
    """What is held against what. `third` is another's result for the same golden file."""

    name: str
    actual: TensorFile
    golden: TensorFile
    third: TensorFile | None = None
    rounding: str = "keep"
    case: str = ""

    @property
    def standard(self) -> Standard:
        return standard_of(self.actual.dtype, self.rounding)


@dataclass(frozen=True, slots=True)
class Comparison:
    pair: Pair
    measures: Measures
    verdicts: list[Verdict]

    def verdict(self, name: str) -> Verdict:
        return next(v for v in self.verdicts if v.name == name)


def compare(pair: Pair, level: str) -> Comparison:
    standard = pair.standard
    measures = measure_all(_pieces(pair.actual, pair.golden, _PIECE), standard)
    third = None if pair.third is None else measure_all(_pieces(pair.third, pair.golden, _PIECE), standard)
    return Comparison(pair, measures, judge(measures, standard, third, level))


def _pieces(actual: TensorFile, golden: TensorFile, cells: int) -> Iterator[tuple[Array, Array]]:
    return zip(actual.pieces(cells), golden.pieces(cells), strict=True)


def pair_files(
    name: str, actual: Path, golden: Path, third: Path | None, dtype: DType | None, rounding: str
) -> Pair:
    """Two files (or three). What a .bin file does not say of itself, the other one does."""
    raw = [path.suffix == ".bin" for path in (actual, golden)]
    if raw[1]:
        a = open_tensor(actual, dtype)
        g = _open_golden(golden, a.dtype, None if raw[0] else a.shape)
    else:
        g = _open_golden(golden)
        own = g.dtype if raw[0] and dtype is None else dtype
        a = open_tensor(actual, own, g.shape if raw[0] else None)
    t = None if third is None else _open_golden(third, a.dtype, a.shape)
    return _matched(Pair(name, a, g, t, rounding))


def pair_entry(entry: Mapping[str, Any], golden: Path, actual: Path, third: Path | None) -> Pair:
    """The files of one entry of golden's manifest; the float64 result is the golden one if it is there.

    GoldenError: a file of the entry is not what was made. The golden result itself is checked by its reader.
    """
    name, files = entry["name"], entry["files"]
    role = "grad_input_float64" if "grad_input_float64" in files else "grad_input"
    if text := touched(golden, entry, but=f"{role}.npy"):
        raise GoldenError(text)
    dtype, shape = DTYPES[files["grad_input"]["dtype"]], tuple(files["grad_input"]["shape"])
    g = _open_golden(golden / name / f"{role}.npy", DTYPES[files[role]["dtype"]], shape)
    g = replace(g, sha256=files[role]["sha256"]["npy"])
    a = open_tensor(find(actual, name), dtype, shape)
    t = None if third is None else _open_golden(find(third, name), dtype, shape)
    return _matched(Pair(name, a, g, t, entry["rounding"], entry["case"]))


def _open_golden(path: Path, dtype: DType | None = None, shape: tuple[int, ...] | None = None) -> TensorFile:
    """A file that results are held against: one that can't be read fails no result."""
    try:
        return open_tensor(path, dtype, shape)
    except TensorFileError as error:
        raise GoldenError(str(error)) from None


def find(directory: Path, name: str) -> Path:
    """Where a directory of results keeps a case's."""
    places = [directory / name / "grad_input", directory / name]
    candidates = [Path(f"{place}{suffix}") for place in places for suffix in (".npy", ".bin")]
    for path in candidates:
        if path.is_file():
            return path
    raise TensorFileError(
        f"{directory}: no result for {name}; it must be in {candidates[0]} or {candidates[2]}"
    )


def _matched(pair: Pair) -> Pair:
    a, g = pair.actual, pair.golden
    if a.dtype.name not in STANDARDS:
        known = ", ".join(name for name in STANDARDS if name in DTYPES)
        raise TensorFileError(f"{a.path}: the file has dtype {a.dtype}; it must be {known}")
    if g.dtype not in (a.dtype, DTYPES["FLOAT64"]):
        raise TensorFileError(
            f"{g.path}: the file has dtype {g.dtype}; it must be {a.dtype}, as {a.path}, or FLOAT64"
        )
    for other in (g, pair.third):
        if other is not None and other.shape != a.shape:
            raise TensorFileError(
                f"{a.path}: the file has shape {a.shape}; it must be {other.shape}, as {other.path}"
            )
        if other is not None and other.fortran != a.fortran and len(a.shape) > 1:
            orders = ("C", "Fortran")
            raise TensorFileError(
                f"{a.path}: the file is in {orders[a.fortran]} order; it must be in {orders[other.fortran]} "
                f"order, as {other.path}: save it with numpy.asarray(x, order=…)"
            )
    return pair


def anatomy(pair: Pair, golden: Path | None = None, case: str = "") -> Anatomy | None:
    """Where a pair's errors are. `golden` is the directory that has the case's inputs."""
    problem = problem_or_none(case or pair.case)
    shape = pair.actual.shape
    *_, height, width = 1, 1, *shape
    batch, plane = (1, prod(shape[:-2])), (1, height, width)
    if problem is not None and prod(shape) == problem.cells:
        batch, plane = problem.batch, problem.input_plane
    else:
        problem = None
    if not 0 < prod(plane) <= LARGEST_PLANE or pair.actual.fortran:
        return None
    grad, indices = (_plane_reader(golden, pair.name, role, problem) for role in ("grad_output", "indices"))
    pairs = _pieces(pair.actual, pair.golden, piece_size(plane))
    return dissect(pairs, batch, plane, problem, grad, indices)


def problem_or_none(case: str) -> Problem | None:
    try:
        return problem_of(parse(case)) if case else None
    except (NotationError, Refused):
        return None


def _plane_reader(directory: Path | None, name: str, role: str, problem: Problem | None) -> Reader | None:
    if directory is None or problem is None:
        return None
    try:
        file = open_tensor(directory / name / f"{role}.npy")
    except TensorFileError:  # the report then does without the values
        return None
    cells = prod(problem.output_plane)
    if file.count != cells * problem.planes:
        return None
    return lambda plane: file.part(plane * cells, cells)
