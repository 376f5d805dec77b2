"""Takes the function behind a C call.

Returns a function that also prints a line for every call, with arguments, result and time, if the environment
has POOLTIDE_TRACE=1. It must not change a call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..acl.findings import say
from ..operators.dtypes import status_name
from .signatures import C_ENUMS, CFunction, CParameter

Answer = tuple[tuple[int, ...] | None, Any]


def traced(function: CFunction, entry: Callable[..., Answer]) -> Callable[..., Answer]:
    def wrapper(*words: Any) -> Answer:
        begin = time.perf_counter_ns()
        answer = entry(*words)
        elapsed = (time.perf_counter_ns() - begin) / 1000
        say(
            f"trace: {function.name}({_arguments(function, words, answer[0])}) = "
            f"{_result(function, answer[1])}, {elapsed:.1f} µs, thread {threading.get_native_id()}"
        )
        return answer

    return wrapper


def _arguments(function: CFunction, words: tuple[Any, ...], outs: tuple[int, ...] | None) -> str:
    parameters = [p for p in function.parameters if p.kind != "n" or p.out]
    results = iter(outs or ())
    return ", ".join(
        f"{p.name}={_word(p, next(results, None)) if p.out else _word(p, word)}"
        for p, word in zip(parameters, words, strict=True)
    )


def _word(parameter: CParameter, word: Any) -> str:
    if word is None:
        return "unset" if parameter.out else "null"
    if parameter.kind in "ph":
        return f"{word:#x}"
    if parameter.type == "bool":
        return "true" if word else "false"
    for name, code in C_ENUMS.get(parameter.type, {}).items():
        if code == word:
            return name
    if isinstance(word, tuple):
        return f"{{{', '.join(map(str, word))}}}"
    return repr(word)


def _result(function: CFunction, result: Any) -> str:
    if function.result == "h":
        return "null" if result is None else f"{result:#x}"
    if function.result == "s":
        return "null" if result is None else repr(result)
    return f"{result} {status_name(result)}" if result else "0"
