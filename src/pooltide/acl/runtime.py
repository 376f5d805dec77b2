"""Takes calls that start and end the runtime, set its options, or ask for facts about the interface.

Returns statuses, versions, sizes of data types and the thread's last message. It must not touch tensors or
jobs, except that aclFinalize ends all streams and frees all memory.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..operators.call import is_int
from ..operators.dtypes import ENUMS, ERRORS, RUNTIME, dtype_by_code
from .callbacks import forget_callbacks
from .contexts import CONTEXTS, STREAMS, current_context
from .error_reports import (
    ACL_INVALID,
    INTERNAL,
    UNINITIALIZED,
    Refused,
    describe,
    entry_point,
    last_status,
    require_code,
    take_message,
)
from .findings import FINDINGS, say
from .leaks import leaks
from .memory_blocks import HOST_MEMORY, MEMORY
from .state import EDITIONS, ENVIRONMENT_FAULT, STATE, edition_from, set_checks, set_edition, set_product

_MAX_OPTION: dict[int, int] = {ENUMS["aclSysParamOpt"][name]: n for name, n in RUNTIME["options"].items()}
_OPTION_NAMES = {code: name for name, code in ENUMS["aclSysParamOpt"].items()}
_OPTION_EDITIONS = {1: "8.0", 2: "8.5"}  # of the options that CANN 6.3 does not have
_SIZES: dict[int, int] = {ENUMS["aclDataType"][name]: size for name, size in RUNTIME["sizes"].items()}
_LEVELS = {code: name.removeprefix("ACL_") for name, code in ENUMS["aclLogLevel"].items()}


@entry_point(int, needs_init=False)
def aclInit(configPath: str | None) -> int:
    """Start the runtime. `configPath` is None or a JSON file: {"product": …, "checks": …, "edition": …}."""
    with STATE.lock:
        if STATE.initialized and not STATE.implicit:
            text = "it was called before; call aclFinalize first."
            raise Refused(ERRORS["ACL_ERROR_REPEAT_INITIALIZE"], text)
        if ENVIRONMENT_FAULT:
            raise Refused(ACL_INVALID, ENVIRONMENT_FAULT)
        if configPath is not None:
            _configure(configPath)
        STATE.initialized, STATE.finalized, STATE.forked = True, False, False
        if not STATE.implicit:
            STATE.options.clear()
        STATE.implicit = False
    return 0


def _configure(path: str) -> None:
    """Apply the settings of a JSON file. Raises Refused, and changes no setting, for a bad file."""
    if not isinstance(path, str):
        text = f"configPath is {describe(path)}; it must be null or the path of a JSON file."
        raise Refused(ACL_INVALID, text)
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        text = f"configPath is {path!r}, which can't be read as JSON ({error}); it must be a JSON file."
        raise Refused(ACL_INVALID, text) from None
    if not isinstance(config, dict):
        text = f"configPath is {path!r}, which holds no JSON object; it must hold one."
        raise Refused(ACL_INVALID, text)
    setters = {"product": set_product, "checks": set_checks, "edition": set_edition}
    before = STATE.product, STATE.chip, STATE.checks, STATE.edition
    try:
        for key, setter in setters.items():
            if key in config:
                setter(config[key])
    except (ValueError, TypeError) as error:
        STATE.product, STATE.chip, STATE.checks, STATE.edition = before
        raise Refused(ACL_INVALID, f"configPath is {path!r}: {error}") from None
    if (ignored := sorted(config.keys() - setters.keys())) and STATE.checks != "off":
        say(f"aclInit: {path} sets {', '.join(ignored)}, which pooltide does not know and ignores")


@entry_point(int, needs_init=False)
def aclFinalize() -> int:
    """Finish all streams, end all contexts, and free all memory."""
    with STATE.lock:
        if STATE.finalized:
            text = "it was called before; call aclInit first."
            raise Refused(ERRORS["ACL_ERROR_REPEAT_FINALIZE"], text)
        if not STATE.initialized:
            when = "in a child process after fork()" if STATE.forked else "before aclInit"
            raise Refused(UNINITIALIZED, f"it was called {when}; call aclInit first.")
        STATE.initialized, STATE.finalized, STATE.implicit = False, True, False
    left = leaks() if STATE.checks != "off" else []
    CONTEXTS.close_all()
    STREAMS.close_all()
    forget_callbacks()
    MEMORY.clear()
    HOST_MEMORY.clear()
    FINDINGS.end_run()
    for text in left if STATE.checks == "warn" else left[1:]:
        FINDINGS.show(FINDINGS.record(f"aclFinalize: {text}", certain=True))
    if left and STATE.checks == "strict":
        raise Refused(INTERNAL, left[0], certain=True)
    return 0


def _set_option(options: dict[int, int], opt: Any, value: Any) -> int:
    require_code("opt", opt, ENUMS["aclSysParamOpt"])
    first = _OPTION_EDITIONS.get(int(opt), EDITIONS[0])
    if not edition_from(first):
        what = f"opt is {opt}, {_OPTION_NAMES[int(opt)]}, which came with CANN {first}"
        raise Refused(ACL_INVALID, f"{what}; in CANN {STATE.edition} it must be another.")
    highest = _MAX_OPTION[int(opt)] if edition_from("9.2") else 1
    if not is_int(value) or value not in range(highest + 1):
        must = "0, 1, 2 (position-independent) or 3 (batch-consistent)" if highest > 1 else "0 or 1"
        raise Refused(ACL_INVALID, f"value is {value!r:.40}; it must be {must}.")
    options[int(opt)] = int(value)
    return 0


def _get_option(options: dict[int, int], opt: Any) -> tuple[int, int]:
    require_code("opt", opt, ENUMS["aclSysParamOpt"])
    return options.get(int(opt), 0), 0


@entry_point(int)
def aclrtCtxSetSysParamOpt(opt: int, value: int) -> int:
    """Store an option of the context. Results are deterministic at every value of ACL_OPT_DETERMINISTIC."""
    return _set_option(current_context().options, opt, value)


@entry_point(lambda status: (0, status))
def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int, int]:
    return _get_option(current_context().options, opt)


@entry_point(int)
def aclrtSetSysParamOpt(opt: int, value: int) -> int:
    """Store an option of the process. No option has an effect."""
    return _set_option(STATE.options, opt, value)


@entry_point(lambda status: (0, status))
def aclrtGetSysParamOpt(opt: int) -> tuple[int, int]:
    return _get_option(STATE.options, opt)


@entry_point(lambda status: (0, 0, 0, status), needs_init=False)
def aclrtGetVersion() -> tuple[int, int, int, int]:
    """(major, minor, patch) of the runtime's interface."""
    return *RUNTIME["version"], 0


def aclrtGetSocName() -> str:
    """The name of a chip of the product."""
    name: str = STATE.chip or RUNTIME["soc_names"][STATE.product]
    return name


@entry_point(int, needs_init=False)
def aclnnInit(configPath: str | None) -> int:
    """Accepted without effect."""
    return 0


@entry_point(int, needs_init=False)
def aclnnFinalize() -> int:
    """Accepted without effect."""
    return 0


def aclrtGetLastError(level: int) -> int:
    """The status of the calling thread's last call that failed, which is cleared; 0 when there is none."""
    return last_status(clear=True)


def aclrtPeekAtLastError(level: int) -> int:
    """The same as aclrtGetLastError; the status stays."""
    return last_status(clear=False)


@entry_point(int)
def aclrtSetOpExecuteTimeOut(timeout: int) -> int:
    """Accepted without effect: an operator computes as long as it takes."""
    if not is_int(timeout) or timeout not in range(2**32):
        raise Refused(ACL_INVALID, f"timeout is {timeout!r:.40}; it must be seconds, an int of 32 bits.")
    return 0


def aclGetRecentErrMsg() -> str | None:
    """The message of the calling thread's last failure, which is cleared; None when there is none."""
    return take_message()


def aclDataTypeSize(dataType: int) -> int:
    """The bytes of one element; 0 for a type of less than a byte, and for an unknown code."""
    if not is_int(dataType):
        return 0
    dtype = dtype_by_code(int(dataType))
    return dtype.itemsize if dtype else _SIZES.get(int(dataType), 0)


def aclFloat16ToFloat(value: int) -> float:
    """The number whose 16 bits are `value`."""
    return float(np.uint16(int(value) & 0xFFFF).view(np.float16))


def aclFloatToFloat16(value: float) -> int:
    """The 16 bits of the nearest fp16 number; ties go to even."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).astype(np.float16).view(np.uint16))


@entry_point(lambda status: None, needs_init=False)
def aclAppLog(logLevel: int, func: str, file: str, line: int, fmt: str, *arguments: Any) -> None:
    """Print a line of the program's log on stderr."""
    require_code("logLevel", logLevel, ENUMS["aclLogLevel"])
    try:
        text = str(fmt) % arguments if arguments else str(fmt)
    except (TypeError, ValueError) as error:
        raise Refused(ACL_INVALID, f"fmt is {fmt!r:.60} ({error}); it must fit the arguments.") from None
    say(f"[{_LEVELS[int(logLevel)]}] {file}:{line} {func}: {text}")
