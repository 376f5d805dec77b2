"""Documents whose structure was damaged: other types, keys that are there twice, deep lists, odd paths.

`damaged` changes a JSON document and returns its text; the text may be no JSON that Python would write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any


class Raw(str):
    """A part of a document that is written as it stands."""


class Pairs(list[tuple[str, Any]]):
    """An object of JSON; a key can be there twice."""


NUMBERS = [0, -1, 1, 2, 1.5, -0.0, 2**31, 2**62, 2**63, -(2**63), 10**18, 10**400, 10**4000, 1e308]
TEXTS = [
    "", "x", "..", ".", "/", "../x", "a/b", "a\\b", "\0", "a\0b", "\ud800", "\udcff", "\x1b[31m", "a\nb", "\u202e", "名" * 90,
    "x" * 300, "x" * 5000, "=cmd()", "+1", "-1", "@x", "\t=1", "inf", "nan", "f16", "i64", "ND", "avg2d:1x2x5x7:k2", "ceil:ceil",
    "0" * 64, "1/2", "9/9", "b.bin", "a" * 250 + ".bin", "a\0.bin", "\ud800.bin", "torch.Tensor", "float32",
]  # fmt: skip
WHOLE = [
    None, True, False, [], {}, [[]], {"a": [1]}, {"": ""}, [None], [True], ["x"], [1.5], [-1], [0, 0, 0, 0], [2**62] * 4,
    Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e999"), Raw("9" * 5000), Raw("[" * 70 + "]" * 70),
    Raw("[" * 900 + "]" * 900), Raw('{"a":' * 900 + "1" + "}" * 900), Raw("[" * 100_000 + "]" * 100_000), Raw("[" * 50), Raw(""),
]  # fmt: skip


def damaged(document: Any, rng: Random, texts: list[str]) -> str:
    """The text of the document after a few changes; `texts` are odd texts beside TEXTS, such as paths."""
    value = _paired(document)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = _changed(value, rng.choice(list(_places(value))), rng, texts)
    return _text(value)


def _paired(value: Any) -> Any:
    if isinstance(value, dict):
        return Pairs((key, _paired(part)) for key, part in value.items())
    return [_paired(part) for part in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {_text(part)}" for key, part in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value) if type(value) is int else json.dumps(value)


def _places(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """The path of every part, as places in lists and pairs."""
    yield path
    for at, part in enumerate(value if isinstance(value, list) else ()):
        yield from _places(part[1] if isinstance(value, Pairs) else part, (*path, at))


def _changed(value: Any, path: tuple[int, ...], rng: Random, texts: list[str]) -> Any:
    if len(path) > 1:
        at, copy = path[0], type(value)(value)
        part = copy[at]
        if isinstance(value, Pairs):
            copy[at] = (part[0], _changed(part[1], path[1:], rng, texts))
        else:
            copy[at] = _changed(part, path[1:], rng, texts)
        return copy
    if not path:
        return rng.choice((value, [value], _odd(rng, texts)))
    return _edited(value, path[0], rng, texts)


def _edited(value: Any, at: int, rng: Random, texts: list[str]) -> Any:
    """An object or a list with one of its parts changed, dropped, doubled or renamed."""
    copy, keyed = type(value)(value), isinstance(value, Pairs)
    key, part = value[at] if keyed else ("", value[at])
    match rng.randrange(8):
        case 0:
            del copy[at]
        case 1:  # the last of two equal keys would win
            copy.insert(rng.randrange(len(copy) + 1), (key, _odd(rng, texts)) if keyed else part)
        case 2:
            copy.append((key, part) if keyed else _odd(rng, texts))
        case 3 if keyed:
            copy[at] = (rng.choice(TEXTS + texts), part)
        case 4 if keyed:
            copy.append((rng.choice(TEXTS + texts), part))
        case 5:
            copy[at] = (key, [part]) if keyed else [part]
        case _:
            odd = _odd(rng, texts)
            copy[at] = (key, odd) if keyed else odd
    return copy


def _odd(rng: Random, texts: list[str]) -> Any:
    kind = rng.choice((NUMBERS, TEXTS, WHOLE, texts or TEXTS))
    return _paired(rng.choice(kind))
