"""The entries of a manifest: what `pooltide golden` writes about a case, and whether its files are unchanged.

All fields of an entry but the sha256 of its files follow from its case, so `checked` needs no files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..operators.dtypes import DTYPES, DType
from ..writing import why
from .case_names import NAMES, is_name
from .cases import parse_json
from .notation import parse
from .pack import PackError
from .plain_files import Source, opened
from .tensorfile import CHANGED
from .trial import Refused, dtype_of_boxes, problem_of
from .words import NotationError

MANIFEST = "manifest.jsonl"
RESULTS = ("grad_input", "output")
ROLES = ("grad_output", "input", "indices", "boxes", *RESULTS, *(f"{name}_float64" for name in RESULTS))
SUFFIXES = ("npy", "bin")
SHA256 = re.compile(r"[0-9a-f]{64}")


def entry_of(line: bytes) -> dict[str, Any]:
    entry = parse_json(line)
    if not isinstance(entry, dict):
        raise ValueError(f"the line is JSON of {type(entry).__name__}; it must be an object")
    return entry


def checked(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry, if each of its fields is what `pooltide golden` writes for its case; else ValueError."""
    for key, kind in {"name": str, "line": int, "case": str, "files": dict}.items():
        if type(entry.get(key)) is not kind:
            raise ValueError(f"{key} is {short(entry.get(key))}; it must be {kind.__name__}")
    if not 0 < entry["line"] < 2**63:
        raise ValueError(f"line is {short(entry['line'])}; it must be the number of a line")
    if not is_name(entry["name"]):
        raise ValueError(f"name is {short(entry['name'])}; {NAMES}")
    want = expected(entry["name"], entry["line"], entry["case"], has_float64(entry))
    _equal("", {**entry, "files": None}, {**want, "files": None})
    _equal("files.", dict.fromkeys(entry["files"]), dict.fromkeys(want["files"]))
    for role, about in want["files"].items():
        got = entry["files"][role]
        if not isinstance(got, dict):
            raise ValueError(f"files.{role} is {short(got)}; it must have shape, dtype and sha256")
        _equal(f"files.{role}.", {**got, "sha256": None}, {**about, "sha256": None})
        _digests(role, got.get("sha256"))
    return dict(entry)


def _digests(role: str, digests: Any) -> None:
    where = f"files.{role}.sha256"
    if not isinstance(digests, dict) or digests.keys() != set(SUFFIXES):
        raise ValueError(f"{where} is {short(digests)}; it must have {' and '.join(SUFFIXES)}")
    for suffix, digest in digests.items():
        if not isinstance(digest, str) or not SHA256.fullmatch(digest):
            raise ValueError(f"{where}.{suffix} is {short(digest)}; it must be 64 hexadecimal digits")


def _equal(where: str, got: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    for key in [*want, *got]:
        if key not in want:
            raise ValueError(f"{where}{short(key)} is unknown; known are {', '.join(want)}")
        if key not in got:
            raise ValueError(f"{where}{key} is missing; it must be there")
        if json.dumps(got[key]) != json.dumps(want[key]):  # unlike ==, json distinguishes True from 1
            raise ValueError(f"{where}{key} is {short(got[key])}; for this case it must be {want[key]!r}")


def short(value: Any) -> str:
    try:
        return repr(value)[:60]
    except (RecursionError, ValueError):
        return "a value too long to print"


def expected(name: str, line: int, case: str, float64: bool) -> dict[str, Any]:
    """The entry of a case, without the sha256 of its files. ValueError: the case can't be computed.

    With `float64`, the entry has the unrounded result too.
    """
    try:
        parsed = parse(case)
        problem = problem_of(parsed)
    except (NotationError, Refused) as error:
        raise ValueError(str(error)) from None
    if str(parsed) != case:
        raise ValueError(f"case is {short(case)}; it must be spelled {parsed}")
    call = parsed.call(parsed.product or "host")
    result = "grad_input" if problem.gradient else "output"
    source = "grad_output" if problem.gradient else "input"
    kinds: dict[str, tuple[str, DType | None]] = {  # name of a file: the role of its tensor, and its dtype
        source: (source, problem.dtype),
        "indices": ("indices", problem.index_dtype),
        "boxes": ("boxes", dtype_of_boxes(call)),
        result: ("out", problem.dtype),
        f"{result}_float64": ("out", DTYPES["FLOAT64"] if float64 else None),
    }
    files = {
        name: {"shape": list(call.role(role).shape), "dtype": dtype.name, "sha256": {}}
        for name, (role, dtype) in kinds.items()
        if dtype is not None
    }
    return {
        "name": name,
        "line": line,
        "case": case,
        "seed": parsed.data.seed,
        "distribution": parsed.data.distribution,
        "input_shape": list(parsed.shape),
        "rounding": problem.rounding,
        "files": files,
    }


def result_of(entry: Mapping[str, Any]) -> str:
    """The name of the file of the result: grad_input, or output of a forward."""
    return next(name for name in RESULTS if name in entry["files"])


def has_float64(entry: Mapping[str, Any]) -> bool:
    """Whether the entry has the unrounded result too."""
    return any(f"{name}_float64" in entry["files"] for name in RESULTS)


def writes_indices(entry: Mapping[str, Any]) -> bool:
    """Whether the indices are a result: of a maximum, and not of what reads them."""
    return "indices" in entry["files"] and parse(entry["case"]).operator.writes_indices


def first_change(
    place: Callable[[str, str], Source], entry: Mapping[str, Any], *, skip: str = ""
) -> str | None:
    """A message about the first file that is missing or has another sha256; None if all files are unchanged.

    `place` finds a file of a case; `skip` names a file that the caller checks itself.
    """
    for role, about in entry["files"].items():
        for suffix, digest in about["sha256"].items():
            if (file_name := f"{role}.{suffix}") == skip:
                continue
            try:
                path = place(entry["name"], file_name)
                with opened(path) as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                        return f"{path}: {CHANGED}"
            except FileNotFoundError:
                return f"{path}: the file is missing; {MANIFEST} has it"
            except OSError as error:
                return f"{path}: can't be read: {why(error)}"
            except PackError as error:
                return str(error)
    return None
