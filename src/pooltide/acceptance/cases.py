"""Reads files of cases: CSV or JSON lines, one case each. A bad line gives a Line with an error.

    avg2d:2x3x11x13:k3:s2:f16                          a line may be the notation alone
    name,case,seed                                     or CSV under a header of fields
    stem,avg2d:2x3x11x13:k3:s2:f16,7
    {"name": "stem", "case": "avg2d:2x3x11x13:k3:s2"}  or a JSON object of fields
    {"operator": "avg2d", "input": [2, 3, 11, 13], "kernel": [3, 3], "ceil_mode": true}

A line needs `case`, or `operator` and `input`; every other field of FIELDS adds its word to the notation.
Empty lines and lines that begin with # are skipped.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..writing import why
from .case_names import NAMES, form, is_name
from .notation import Case, parse
from .words import BOXES_FILE, NotationError

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0", "")

# field: the prefix of its numbers; "": the value is the word; (word for true, word for false)
FIELDS: dict[str, str | tuple[str, str]] = {
    "output": "o", "kernel": "k", "stride": "s", "padding": "p", "dilation": "d",
    "ceil_mode": ("ceil", ""), "count_include_pad": ("", "nopad"),
    "divisor_override": "div", "cube_math_type": "cube",
    "dtype": "", "index_dtype": "", "format": "", "layout": "", "distribution": "",
    "boxes": "boxes", "boxes_file": BOXES_FILE,
    "spatial_scale": "scale", "sampling_ratio": "ratio", "aligned": ("aligned", ""),
    "seed": "seed", "nan": ("nan", ""), "inf": ("inf", ""), "anywhere": ("anywhere", ""),
    "product": "", "words": "",
}  # fmt: skip
_MAIN = ("name", "case", "operator", "input")
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
LONGEST = 1 << 20  # bytes of a line
_DEEPEST = 32  # nested brackets of JSON


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    name: str
    case: Case | None
    error: str = ""
    supplied: Any = None  # a SuppliedValues (supplied_values.py), for a case whose values are not drawn
    skipped: bool = False  # a pool that this program does not have: no case, but no fault of the file either
    outputs: tuple[str, ...] = ()  # of a call in a dump: the files of its results; "" for one without a file


class CasesError(ValueError):
    """A file, or a line of it, that can't be read."""


def read(path: Path) -> list[Line]:
    return list(read_lazily(path))


def read_lazily(path: Path) -> Iterator[Line]:
    """The lines of a file, one by one. CasesError: the file can't be read, or a line is too long."""
    try:
        if path.is_char_device() or path.is_block_device():  # /dev/zero never ends
            raise CasesError(f"{path}: the path is a device; it must be a file, or - for the standard input")
        with path.open("rb") as file:
            yield from lines(bounded(file))
    except OSError as error:
        raise CasesError(f"{path}: can't be read: {why(error)}") from None


def bounded(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. CasesError: a line is too long."""
    for number, raw in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), 1):
        if len(raw) > LONGEST:
            raise CasesError(f"line {number} has more than {LONGEST} bytes; it must have fewer")
        yield raw


def lines(source: Iterable[bytes]) -> Iterator[Line]:
    """Every case of a file in order; a line that can't be read has no case, but an error."""
    header: list[str] | None = None
    separator = ","
    seen: dict[str, int] = {}
    for number, raw in enumerate(source, 1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n ")
            if not text.strip() or text.startswith("#"):
                continue
            if header is None and not seen and (mark := _separator(text)):
                separator, header = mark, _header(text, mark)
                continue
            fields = _fields(text, header, separator)
            name = _name(fields, number)
            if (key := form(name)) in seen:
                raise CasesError(f"name is {name!r}, which line {seen[key]} has; it must be unique")
            seen[key] = number
            yield Line(number, name, parse(notation(fields)))
        except UnicodeDecodeError as error:
            yield Line(number, _default(number), None, not_utf8(error))
        except (CasesError, NotationError) as error:
            yield Line(number, _default(number), None, str(error))


def count(path: Path) -> int:
    """The number of cases of a file, without reading the cases themselves. CasesError as of `read_lazily`."""
    number, is_first = 0, True
    try:
        with path.open("rb") as file:
            for raw in bounded(file):
                text = raw.decode("utf-8-sig" if is_first else "utf-8", "replace").strip("\r\n ")
                if not text.strip() or text.startswith("#"):
                    continue
                number += not (is_first and _separator(text))
                is_first = False
    except OSError as error:
        raise CasesError(f"{path}: can't be read: {why(error)}") from None
    return number


def notation(fields: Mapping[str, Any]) -> str:
    """The notation of a case that is given by fields."""
    if unknown := sorted(fields.keys() - FIELDS.keys() - set(_MAIN)):
        known = ", ".join((*_MAIN, *FIELDS))
        raise CasesError(f"field {unknown[0][:60]!r} is unknown; known are {known}")
    if fields.get("case"):
        if both := [field for field in ("operator", "input") if fields.get(field)]:
            raise CasesError(f"case and {both[0]} are both there; give one of them")
        text = _word("case", fields["case"])
    elif fields.get("operator") and fields.get("input"):
        text = f"{_word('operator', fields['operator'])}:{_joined('input', fields['input'])}"
    else:
        raise CasesError("there is no case; give the field case, or operator and input")
    words = [word for field, value in fields.items() if field in FIELDS for word in _words(field, value)]
    return ":".join([text, *words])


def _words(field: str, value: Any) -> list[str]:
    spelling = FIELDS[field]
    if value is None or value == "":
        return []
    if isinstance(spelling, tuple):
        lower = str(value).lower()
        if lower not in _TRUE + _FALSE:
            raise CasesError(f"{field} is {str(value)[:60]!r}; it must be true or false")
        word = spelling[0] if lower in _TRUE else spelling[1]
        return [word] if word else []
    return [spelling + _joined(field, value)] if spelling else [_word(field, value)]


def _joined(field: str, value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    if field == "spatial_scale" and isinstance(value, float):
        return repr(value)
    if any(isinstance(v, (bool, dict, list, float)) or v is None for v in values):
        raise CasesError(f"{field} is {str(value)[:60]}; it must be ints")
    return "x".join(map(str, values))


def _word(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise CasesError(f"{field} is {str(value)[:60]}; it must be text")
    return value


def parse_json(text: str | bytes, what: str = "line") -> Any:
    """The value of a line, or a file, of JSON. CasesError: it is no JSON, has a key twice, or is too deep."""
    try:
        value = json.loads(text, object_pairs_hook=_object)
        if not _is_deep(value):
            return value
        reason = "too many brackets are nested"
    except RecursionError:
        reason = "too many brackets are nested"
    except CasesError as error:
        reason = str(error)
    except UnicodeDecodeError as error:
        reason = not_utf8(error)
    except json.JSONDecodeError as error:
        reason = str(error)[:100]
    except ValueError:
        reason = "a number has too many digits"
    raise CasesError(f"the {what} is no JSON: {reason}")


def not_utf8(error: UnicodeDecodeError) -> str:
    """What is wrong with bytes that are not UTF-8; Chinese programs on Windows often write GBK."""
    try:
        error.object.decode("gbk")
    except UnicodeDecodeError:
        return f"byte {error.start} is not UTF-8; it must be"
    return f"byte {error.start} is not UTF-8, but can be GBK; it must be UTF-8: iconv -f GBK -t UTF-8"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Readers disagree on which of two equal keys counts, so there may be one alone."""
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise CasesError(f"an object has the key {key[:60]!r} twice; each key must be there once")
        fields[key] = value
    return fields


def _is_deep(value: Any) -> bool:
    """Whether more brackets are nested than functions that call themselves can follow."""
    level: list[Any] = [[value]]
    for _ in range(_DEEPEST):
        outer = [part.values() if isinstance(part, dict) else part for part in level]
        level = [part for parts in outer for part in parts if isinstance(part, (dict, list))]
        if not level:
            return False
    return True


def _fields(text: str, header: list[str] | None, separator: str) -> dict[str, Any]:
    if text[0] in "{[" or (text[0] == '"' and header is None):
        row = parse_json(text)
        if isinstance(row, str):
            return {"case": row}
        if not isinstance(row, dict):
            raise CasesError(f"the line is JSON of {type(row).__name__}; it must be an object or a string")
        return row
    if header is None:
        alone = text.strip()
        if mark := next((mark for mark in _SEPARATORS if mark in alone), ""):
            marks = _SEPARATORS[mark]
            raise CasesError(
                f"the line has {marks} but the file no header; the first line must name the fields"
            )
        return {"case": alone}
    cells = _cells(text, separator)
    if len(cells) != len(header):
        raise CasesError(f"the line has {len(cells)} cells; it must have {len(header)}, as the header has")
    return dict(zip(header, cells, strict=True))


def _header(text: str, separator: str) -> list[str]:
    names = _cells(text, separator)
    if twice := [name for name in names if names.count(name) > 1]:
        raise CasesError(f"the header names {twice[0][:60]!r} twice; each field must be there once")
    return names


def _separator(text: str) -> str | None:
    """What separates the cells if the line is a header, that is, if a cell names a field; else None."""
    return None if text[0] in "{[" else separator(text, {*_MAIN, *FIELDS})


def separator(text: str, known: Set[str]) -> str | None:
    """What separates the cells of a header, one of which is in `known`; None: no cell is.

    Spreadsheets write semicolons where the comma is the decimal mark, and tabs to the clipboard.
    """
    cells = {mark: {cell.strip().strip('"') for cell in text.split(mark)} for mark in _SEPARATORS}
    return next((mark for mark in _SEPARATORS if known & cells[mark]), None)


def _cells(text: str, separator: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=separator, strict=True))]
    except (csv.Error, StopIteration) as error:
        raise CasesError(f"the line is no CSV: {error}") from None


def _name(fields: Mapping[str, Any], number: int) -> str:
    name = fields.get("name") or _default(number)
    if not isinstance(name, str) or not is_name(name):
        raise CasesError(f"name is {str(name)[:60]!r}; {NAMES}")
    return name


def _default(number: int) -> str:
    return f"case-{number:06d}"
