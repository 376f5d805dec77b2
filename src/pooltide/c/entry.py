"""What the library calls: one Python function for each C function.

Words come in as `signatures` says; handles become objects and objects handles; `acl` and `aclnn` do
the work. The answer is (values of the out-parameters, or None: leave them be; the result).
A call that fails says why on stderr too, unless checks are off: C programs seldom ask.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .. import acl, aclnn
from ..acl.addresses import GUARDS
from ..acl.memory import MEMORY
from ..acl.state import INTERNAL, STATE, fail, keep_message, say, take_message
from ..operators.dtypes import ERRORS, STATUS
from .leaks import leftovers
from .signatures import CFunction, CParameter, functions
from .table import Table
from .trace import Answer, traced

TABLE = Table()
LONGEST = 4096  # elements of an array; the library hands a longer one's length in


def start() -> tuple[tuple[Callable[..., Answer], ...], int]:
    """The functions in the order of the C table, and where the guarded addresses are listed."""
    trace = os.environ.get("POOLTIDE_TRACE", "0") not in ("", "0")
    doors = ((function, _entry(function)) for function in functions())
    made = tuple(traced(function, entry) if trace else entry for function, entry in doors)
    return made, GUARDS.ctypes.data


def _entry(function: CFunction) -> Callable[..., Answer]:
    name = function.name
    target = _finalize if name == "aclFinalize" else aclnn.FUNCTIONS.get(name) or getattr(acl, name)
    parameters = [p for p in function.parameters if p.kind != "n"]

    def entry(*words: Any) -> Answer:
        try:
            answer = _call(function, target, parameters, words)
        except Exception as error:  # a bug of ours: the program must learn of it, and go on
            text = f"internal error, please report it: {type(error).__name__}: {error}"
            answer = _refuse(function, text, INTERNAL, STATUS["ACLNN_ERR_INNER"])
        if _failed(function, answer[1]) and STATE.checks != "off":
            message = take_message()
            keep_message(message or f"{name}: it failed.")
            say(message or f"{name}: it failed.")
        return answer

    return entry


def _failed(function: CFunction, result: Any) -> bool:
    return bool(result) if function.result == "i" else function.result == "h" and result is None


def _call(
    function: CFunction, target: Callable[..., Any], parameters: list[CParameter], words: tuple[Any, ...]
) -> Answer:
    arguments = []
    for parameter, word in zip(parameters, words, strict=True):
        if parameter.out:
            if word is None:
                return _refuse(function, f"{parameter.name} is null; it must point to where the result goes.")
        elif parameter.kind == "h":
            arguments.append(TABLE.find(word))
        elif parameter.kind == "a" and isinstance(word, int):
            text = (
                f"{parameter.length} is {word}; it must be the length of {parameter.name}, {LONGEST} at most."
            )
            return _refuse(function, text, status=STATUS["ACLNN_ERR_PARAM_INVALID"])
        else:
            arguments.append(word)
    result = target(*arguments)
    if function.result == "h":
        return None, None if result is None else TABLE.add(result)
    *results, status = result if isinstance(result, tuple) else (result,)
    if status or not results:
        return None, status
    outs = [p for p in parameters if p.out]
    return tuple(_word(p, value) for p, value in zip(outs, results, strict=True)), status


def _word(parameter: CParameter, value: Any) -> int:
    return TABLE.add(value) if parameter.kind == "h" else int(value)


def _refuse(
    function: CFunction,
    text: str,
    error: int = ERRORS["ACL_ERROR_INVALID_PARAM"],
    status: int = STATUS["ACLNN_ERR_PARAM_NULLPTR"],
) -> Answer:
    code = fail(function.name, text, error if function.returns == "aclError" else status)
    return None, code if function.result == "i" else None


def _finalize() -> int:
    """aclFinalize, which also tells what is left."""
    found = leftovers(TABLE)
    status = acl.aclFinalize()
    if status or not found or STATE.checks == "off":
        return status
    for text in found if STATE.checks == "warn" else found[1:]:
        say(f"aclFinalize: {text}")
    return fail("aclFinalize", found[0], INTERNAL) if STATE.checks == "strict" else 0


def touched(address: int, writes: int, latest: str) -> None:
    """The host is about to fault on a guarded address; the library's signal handler calls this."""
    if STATE.checks == "off":
        return
    did = {0: "read", 1: "wrote to"}.get(writes, "touched")
    say(f"the host {did} {_whereabouts(address)} (the last call of this thread was {latest or 'none'}).")


def _whereabouts(address: int) -> str:
    if TABLE.holds(address):
        return f"{address:#x}, a handle; handles are opaque and must only be passed to calls"
    must = "only aclrtMemcpy may cross to the host"
    if (block := MEMORY.find(address)) is not None:
        at = address - block.address
        size = f"{block.size} bytes at {block.address:#x}"
        return f"device memory at {address:#x}, byte {at} of a block of {size}; {must}"
    return f"device memory at {address:#x}, in no block that is allocated; {must}"
