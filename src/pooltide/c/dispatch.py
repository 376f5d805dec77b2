"""Takes a call of the C library: words, as `signatures` describes them.

Replaces handles by objects, calls the function of `acl` or `aclnn`, and returns (the values of the
out-parameters, or None to leave them unchanged; the result), with handles for objects. It must not touch
device memory. A call that fails also prints its message on stderr, unless checks are off: few C programs call
aclGetRecentErrMsg.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import acl, aclnn
from ..acl.addresses import GUARDS
from ..acl.error_reports import INTERNAL, Refused, recent_message, record_failure, say
from ..acl.memory_blocks import MEMORY
from ..acl.state import STATE
from ..operators.dtypes import ERRORS, STATUS, dtype_by_code
from .handle_table import HandleTable
from .leaks import leaks
from .signatures import CFunction, CParameter, functions
from .trace import Answer, traced

TABLE = HandleTable()
MAX_ARRAY = 4096  # elements of an array; for a longer one the library passes the length alone


def start() -> tuple[tuple[Callable[..., Answer], ...], int]:
    """The functions in the order of the C table, and the address of the list of guarded ranges."""
    trace = os.environ.get("POOLTIDE_TRACE", "0") not in ("", "0")
    entries = ((function, _entry(function)) for function in functions())
    targets = tuple(traced(function, entry) if trace else entry for function, entry in entries)
    return targets, GUARDS.ctypes.data


def catch_up(finalized: int) -> None:
    """Make the calls that the library answered before it imported this package (c/early_answers.h)."""
    acl.aclInit(None)
    if finalized:
        acl.aclFinalize()


def _entry(function: CFunction) -> Callable[..., Answer]:
    name = function.name
    target = _finalize if name == "aclFinalize" else aclnn.FUNCTIONS.get(name) or getattr(acl, name)
    parameters = [p for p in function.parameters if p.kind != "n" or p.out]

    def entry(*words: Any) -> Answer:
        try:
            answer = _call(function, target, parameters, words)
        except Exception as error:  # a bug in pooltide: the program must learn of it, and go on
            text = f"internal error, please report it: {type(error).__name__}: {error}"
            answer = _refuse(function, text, INTERNAL, STATUS["ACLNN_ERR_INNER"])
        if _failed(function, answer[1]) and STATE.checks != "off":
            say(recent_message() or f"{name}: it failed.")
        return answer

    return entry


def _failed(function: CFunction, result: Any) -> bool:
    if function.prototype:
        return True
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


def _finalize() -> int:
    """aclFinalize, which also reports objects and memory that the program did not release."""
    sentences = leaks(TABLE)
    status = acl.aclFinalize()
    if status or not sentences or STATE.checks == "off":
        return status
    for text in sentences if STATE.checks == "warn" else sentences[1:]:
        say(f"aclFinalize: {text}")
    return record_failure("aclFinalize", Refused(INTERNAL, sentences[0])) if STATE.checks == "strict" else 0


def report_host_access(address: int, writes: int, last_call: str) -> None:
    """Print which guarded address the host accessed. The library's SIGSEGV handler calls this.

    `writes` is 1 for a write, 0 for a read and -1 for an unknown access.
    """
    if STATE.checks == "off":
        return
    did = {0: "read", 1: "wrote to"}.get(writes, "accessed")
    say(f"the host {did} {_describe(address)} (the last call of this thread was {last_call or 'none'}).")


def _describe(address: int) -> str:
    if TABLE.contains(address):
        return f"{address:#x}, a handle; handles are opaque and must only be passed to calls"
    must = "only aclrtMemcpy may cross to the host"
    if (block := MEMORY.find(address)) is not None:
        at = address - block.address
        size = f"{block.size} bytes at {block.address:#x}"
        return f"device memory at {address:#x}, byte {at} of a block of {size}; {must}"
    return f"device memory at {address:#x}, in no block that is allocated; {must}"
