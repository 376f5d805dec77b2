"""Compares results in files with golden ones.

`pair_files` and `pair_entry` open the files of a case as a Pair, `compare` judges it, and `error_map` says
where its errors are. Files are read piece by piece, so memory does not grow with their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from ..operators.dtypes import DTYPES, DType
from ..problem.problem import Problem
from .errormap import LARGEST_PLANE, Array, ErrorMap, Reader, map_errors, piece_size
from .inputs import result_plane, source_plane
from .manifest import Manifest
from .manifest_entry import SUFFIXES, first_change, has_float64, result_of, writes_indices
from .measures import PRECISIONS, Measures, Precision, index_measures, measure_all, precision_of
from .notation import Case, parse
from .pack import PackError
from .plain_files import Source
from .results import Results
from .tensorfile import GoldenError, TensorFile, TensorFileError, open_tensor, words_hint
from .trial import Refused, problem_of
from .verdicts import COSINE, Verdict, judge
from .words import NotationError

_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Pair:
    """A result and its golden values; `third` is a result of another implementation, or None."""

    name: str
    actual: TensorFile
    golden: TensorFile
    third: TensorFile | None = None
    rounding: str = "keep"
    case: str = ""
    indices: tuple[TensorFile, TensorFile] | None = None  # of maxima: the result's and the golden ones

    @property
    def precision(self) -> Precision:
        return precision_of(self.actual.dtype, self.rounding)


@dataclass(frozen=True, slots=True)
class Comparison:
    pair: Pair
    measures: Measures
    verdicts: list[Verdict]

    def verdict(self, name: str) -> Verdict:
        return next(v for v in self.verdicts if v.name == name)


def compare(pair: Pair, level: str) -> Comparison:
    precision = pair.precision
    measures = measure_all(_pieces(pair.actual, pair.golden, _PIECE), precision)
    if pair.indices is not None:
        pieces = _pieces(*pair.indices, _PIECE)
        measures += sum((index_measures(actual, golden) for actual, golden in pieces), Measures())
    third = None if pair.third is None else _measured_third(pair.third, pair.golden, precision)
    return Comparison(pair, measures, judge(measures, precision, third, level))


def _measured_third(third: TensorFile, golden: TensorFile, precision: Precision) -> Measures:
    """The errors of the third result. GoldenError: they are so large that any result would be better."""
    m = measure_all(_pieces(third, golden, _PIECE), precision)
    if m.misplaced:
        wrong = f"{m.misplaced} of {m.count} cells have a NaN or Inf out of place"
    elif not m.cosine > COSINE:
        wrong = f"its cosine similarity is {m.cosine:.6g}; it must be above {COSINE}"
    else:
        return m
    raise GoldenError(f"{third.path}: the third result is wrong, so nothing can be compared with it: {wrong}")


def _pieces(actual: TensorFile, golden: TensorFile, cells: int) -> Iterator[tuple[Array, Array]]:
    return zip(actual.pieces(cells), golden.pieces(cells), strict=True)


def pair_files(
    name: str, actual: Path, golden: Path, third: Path | None, dtype: DType | None, rounding: str
) -> Pair:
    """Open two files, or three. A .bin file has the dtype and shape of the other file."""
    raw = [path.suffix == ".bin" for path in (actual, golden)]
    if raw[1]:
        a = open_tensor(actual, dtype)
        g = _open_golden(golden, a.dtype, None if raw[0] else a.shape)
    else:
        g = _open_golden(golden)
        a = open_tensor(actual, dtype or (g.dtype if raw[0] else None), g.shape if raw[0] else None)
    t = None if third is None else _open_golden(third, a.dtype, a.shape)
    if not a.count and not g.count:  # such files are what a program leaves that failed
        raise TensorFileError(f"{actual}: the file has no cell; it must have cells")
    return _checked(Pair(name, a, g, t, rounding))


def pair_entry(entry: Mapping[str, Any], golden: Manifest, actual: Results, third: Results | None) -> Pair:
    """Open the files of one entry of the manifest; the golden result is the float64 one if there is one.

    GoldenError: a golden file was changed. The golden result is checked later, while it is read.
    """
    name, files, result = entry["name"], entry["files"], result_of(entry)
    role = f"{result}_float64" if has_float64(entry) else result
    if text := first_change(golden.file, entry, skip=f"{role}.npy"):
        raise GoldenError(text)
    dtype, shape = DTYPES[files[result]["dtype"]], tuple(files[result]["shape"])
    g = _open_golden(_file(golden, name, f"{role}.npy"), DTYPES[files[role]["dtype"]], shape)
    g = replace(g, sha256=files[role]["sha256"]["npy"])
    a = open_tensor(actual.path(name, result), dtype, shape)
    t = None if third is None else _open_golden(third.path(name, result), dtype, shape)
    indices = _indices(entry, golden, actual) if writes_indices(entry) else None
    own = [] if golden.pack else [_file(golden, name, f"{key}.{end}") for key in files for end in SUFFIXES]
    _check_own(a.path, own if t is None else [*own, t.path])
    if indices is not None:
        _check_own(indices[0].path, own)
    return _checked(Pair(name, a, g, t, entry["rounding"], entry["case"], indices))


def _check_own(result: Source, others: Iterable[Source]) -> None:
    """A result passes against itself. TensorFileError: it is a link to one of the other files."""
    for other in others:
        if isinstance(result, Path) and isinstance(other, Path) and result.samefile(other):
            raise TensorFileError(f"{result}: the file is {other}; a result must not be judged by itself")


def _file(golden: Manifest, name: str, file: str) -> Source:
    try:
        return golden.file(name, file)
    except PackError as error:
        raise GoldenError(str(error)) from None


def _indices(entry: Mapping[str, Any], golden: Manifest, actual: Results) -> tuple[TensorFile, TensorFile]:
    """The indices of maxima, of the result and golden ones."""
    about, name = entry["files"]["indices"], entry["name"]
    dtype, shape = DTYPES[about["dtype"]], tuple(about["shape"])
    theirs = _open_golden(_file(golden, name, "indices.npy"), dtype, shape)
    return open_tensor(actual.path(name, "indices"), dtype, shape), theirs


def _open_golden(
    path: Source, dtype: DType | None = None, shape: tuple[int, ...] | None = None
) -> TensorFile:
    """Open a golden or third file; an error is a GoldenError, which fails no result."""
    try:
        return open_tensor(path, dtype, shape)
    except TensorFileError as error:
        raise GoldenError(str(error)) from None


def _checked(pair: Pair) -> Pair:
    """The pair, if its files have matching dtypes, shapes and orders; else TensorFileError."""
    a, g = pair.actual, pair.golden
    if a.dtype.name not in PRECISIONS:
        known = ", ".join(name for name in PRECISIONS if name in DTYPES)
        raise TensorFileError(
            f"{a.path}: the file has dtype {a.dtype}; it must be {known}{words_hint(a.stored)}"
        )
    if g.dtype not in (a.dtype, DTYPES["FLOAT64"]):
        wide = "" if a.dtype is DTYPES["FLOAT64"] else ", or FLOAT64"
        text = f"the file has dtype {g.dtype}; it must be {a.dtype}, as {a.path}{wide}{words_hint(g.stored)}"
        raise TensorFileError(f"{g.path}: {text}")
    for other in (g, pair.third):
        if other is not None and other.shape != a.shape:
            raise TensorFileError(
                f"{a.path}: the file has shape {a.shape}; it must be {other.shape}, as {other.path}"
            )
        if other is not None and other.fortran != a.fortran and len(a.shape) > 1:
            orders = ("C", "Fortran")
            raise TensorFileError(
                f"{a.path}: the file is in {orders[a.fortran]} order; it must be in {orders[other.fortran]} "
                f"order, as {other.path}: save it with numpy.asarray(x, order='{orders[other.fortran][0]}')"
            )
    return pair


def error_map(pair: Pair, golden: Manifest | None = None) -> ErrorMap | None:
    """Where the errors of a pair are; None for planes too large to draw and for Fortran order.

    `golden` has the inputs of the case.
    """
    case = _case(pair.case)
    problem = None if case is None else problem_of(case)
    shape = pair.actual.shape
    *_, height, width = 1, 1, *shape
    batch, plane = (1, prod(shape[:-2])), (1, height, width)
    if isinstance(problem, Problem) and prod(shape) == problem.planes * prod(result_plane(problem)):
        batch, plane = problem.batch, result_plane(problem)
    else:
        problem = None
    if not 0 < prod(plane) <= LARGEST_PLANE or pair.actual.fortran:
        return None
    names = ("grad_output" if problem is not None and problem.gradient else "input", "indices")
    source, indices = (_plane_reader(golden, pair.name, role, problem) for role in names)
    pairs = _pieces(pair.actual, pair.golden, piece_size(plane))
    axes = case.operator.axes if case is not None and problem is not None else ("row", "column")
    return map_errors(pairs, batch, plane, problem, axes, source, indices)


def _case(text: str) -> Case | None:
    """The case of a pair, if one is known and can be computed."""
    try:
        case = parse(text) if text else None
        if case is not None:
            problem_of(case)
    except (NotationError, Refused):
        return None
    return case


def _plane_reader(golden: Manifest | None, name: str, role: str, problem: Problem | None) -> Reader | None:
    if golden is None or problem is None:
        return None
    try:
        file = open_tensor(_file(golden, name, f"{role}.npy"))
    except TensorFileError:  # the report then has no values
        return None
    cells = prod(problem.output_plane if role == "indices" else source_plane(problem))
    if file.count != cells * problem.planes:
        return None
    return lambda plane: file.part(plane * cells, cells)
