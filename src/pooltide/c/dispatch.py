"""Takes a call of the C library: words, as `signatures` describes them.

Replaces handles by objects, calls the function of `acl` or of an operator, and returns (the values of the
out-parameters, or None to leave them unchanged; the result), with handles for objects. It must not touch
device memory. A call that fails also prints its message on stderr, unless checks are off: few C programs call
aclGetRecentErrMsg.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import acl
from ..acl.addresses import GUARDS
from ..acl.call_sites import Site, read_c_frames
from ..acl.callbacks import pass_handles
from ..acl.error_reports import INTERNAL, Refused, record_failure, show_failure
from ..acl.findings import FINDINGS, say
from ..acl.host_pages import HOST_PAGES
from ..acl.leaks import leaks, list_by
from ..acl.phase_one import phase_functions
from ..acl.state import STATE
from ..operators.catalog import documented, folders, user_operators
from ..operators.dtypes import ERRORS, STATUS, dtype_by_code
from ..operators.toml import PageError
from .handle_table import TABLE
from .host_accesses import report_host_access as report_host_access  # for the C library
from .signatures import CFunction, CParameter, functions, interface
from .trace import Answer, traced

MAX_ARRAY = 4096  # elements of an array; for a longer one the library passes the length alone


def start(
    read_frames: int, where: str, built_for: str, handles_faults: int
) -> tuple[tuple[Callable[..., Answer], ...], int] | str:
    """The functions in the order of the C table, and the address of the list of guarded ranges.

    A sentence without an end instead, if the pages of users do not allow a start.

    `read_frames` is the address of the library's function that `call_sites` calls; `where` are the folders of
    users' operators that the library was built with, and `built_for` is its `interface`. `handles_faults` is
    1 when the library handles the faults of watched host memory.
    """
    read_c_frames(read_frames)
    pass_handles(TABLE.add)
    list_by(TABLE.live)
    HOST_PAGES.handled = bool(handles_faults)
    try:
        users = user_operators(folders(where))
    except PageError as error:
        return f"{error}. Correct the page or its function"
    table = functions(tuple(users.values()))
    if interface(table) != built_for:
        what = f"pooltide or the parameters in the pages of {where}" if where else "pooltide"
        build = f"`pooltide cc --operators {where}`" if where else "`pooltide cc` or `pooltide cflags`"
        return f"{what} changed since this library was built; compile the program again by {build}"
    trace = os.environ.get("POOLTIDE_TRACE", "0") not in ("", "0")
    phases = phase_functions((*documented().values(), *users.values()))
    entries = ((function, _entry(function, phases)) for function in table)
    targets = tuple(traced(function, entry) if trace else entry for function, entry in entries)
    return targets, GUARDS.ctypes.data


def catch_up(finalized: int) -> None:
    """Make the calls that the library answered before it imported this package (c/early_answers.h)."""
    acl.aclInit(None)
    if finalized:
        acl.aclFinalize()


def _entry(function: CFunction, phases: Mapping[str, Callable[..., Any]]) -> Callable[..., Answer]:
    name = function.name
    target = phases.get(name) or getattr(acl, name)
    parameters = [p for p in function.parameters if p.kind != "n" or p.out]

    def entry(*words: Any) -> Answer:
        try:
            answer = _call(function, target, parameters, words)
        except Exception as error:  # a bug in pooltide: the program must learn of it, and go on
            text = f"internal error, please report it: {type(error).__name__}: {error}"
            answer = _refuse(function, text, INTERNAL, STATUS["ACLNN_ERR_INNER"])
        if _failed(function, answer[1]) and STATE.checks != "off":
            show_failure(_origins(parameters, words))
        return answer

    return entry


def _origins(parameters: list[CParameter], words: tuple[Any, ...]) -> tuple[tuple[str, Site | None], ...]:
    """Where the program made the used or destroyed objects among the arguments."""
    pairs = zip(parameters, words, strict=True)
    handles = ((p.name, word) for p, word in pairs if p.kind == "h" and not p.out)
    return tuple((f"{name} was made", site) for name, word in handles if (site := TABLE.done_site(word)))


def _failed(function: CFunction, result: Any) -> bool:
    if function.prototype:
        return not function.harmless
    return bool(result) if function.result == "i" else function.result == "h" and result is None


def _call(
    function: CFunction, target: Callable[..., Any], parameters: list[CParameter], words: tuple[Any, ...]
) -> Answer:
    arguments = []
    for parameter, word in zip(parameters, words, strict=True):
        if parameter.out:
            if word is None:
                return _refuse(function, f"{parameter.name} is null; it must point to memory for the result.")
        elif parameter.kind == "h":
            arguments.append(TABLE.find(word))
        elif parameter.kind == "t" and isinstance(word, tuple):
            arguments.append(tuple(map(TABLE.find, word)))
        elif parameter.kind == "v":
            types = [w for p, w in zip(parameters, words, strict=True) if p.name == parameter.length]
            arguments.append(_scalar(word, types[0]))
        elif parameter.kind in "abet" and isinstance(word, int):
            must = f"it must be the length of {parameter.name}, {MAX_ARRAY} at most."
            text = f"{parameter.length} is {word}; {must}"
            return _refuse(function, text, status=STATUS["ACLNN_ERR_PARAM_INVALID"])
        else:
            arguments.append(word)
    result = target(*arguments)
    if function.result == "h":
        return None, None if result is None else TABLE.add(result)
    if function.result != "i":
        return None, result
    *results, status = result if isinstance(result, tuple) else (result,)
    if status or not results:
        return None, status
    return tuple(_words([p for p in parameters if p.out], results)), status


def _words(outs: list[CParameter], results: list[Any]) -> Iterator[Any]:
    """The values for the out-parameters: an array is a tuple of ints, and its length follows it."""
    values = iter(results)
    length = 0
    for parameter in outs:
        if parameter.kind == "n":
            yield length
            continue
        value = next(values)
        if parameter.kind == "a":
            length = len(value)
            yield value
        else:
            yield TABLE.word(value) if parameter.kind == "h" else value or 0


def _scalar(address: int | None, code: int) -> Any:
    """The number at an address of the host; None for null or for a type that no scalar has."""
    dtype = dtype_by_code(code)
    if address is None or dtype is None:
        return None
    raw = (ctypes.c_uint8 * dtype.itemsize).from_address(address)
    return np.frombuffer(bytes(raw), dtype.numpy)[0]


def _refuse(
    function: CFunction,
    text: str,
    error: int = ERRORS["ACL_ERROR_INVALID_PARAM"],
    status: int = STATUS["ACLNN_ERR_PARAM_NULLPTR"],
) -> Answer:
    refused = Refused(error if function.returns == "aclError" else status, text)
    code = record_failure(function.name, refused)
    return None, code if function.result == "i" else None


def end_process(status: int) -> int:
    """Print what is left to say at the end of the process; returns another exit status, or 0."""
    if STATE.checks == "off":
        return 0
    for text in leaks() if STATE.initialized and status == 0 else ():
        message = f"the program ended without aclFinalize: {text}"
        FINDINGS.show(FINDINGS.record(message, certain=True, located=False))
    FINDINGS.show_rest()
    FINDINGS.end_run()
    FINDINGS.write_report()
    count = FINDINGS.mistakes()
    if STATE.checks != "strict" or status or not count or not (chosen := _exit_status()):
        return 0
    found = "1 finding" if count == 1 else f"{count} findings"
    why = f"the program has {found} and returns 0"
    say(f"{why}, so it exits with {chosen} (POOLTIDE_EXIT_STATUS sets this number).")
    return chosen


def _exit_status() -> int:
    """The exit status of a program with findings at the level strict; 0: its own."""
    text = os.environ.get("POOLTIDE_EXIT_STATUS") or "86"
    if text.isdecimal() and int(text) < 256:
        return int(text)
    say(f"POOLTIDE_EXIT_STATUS is {text}; it must be a number from 0 to 255.")
    return 86
