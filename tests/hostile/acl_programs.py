"""Programs of the documented interface, and the judgement of what their calls return.

A trial is a short program. Its steps name objects by number, so that the text of the program is known
before it runs. Nothing here may raise; a status other than 0 comes with a message.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from pooltide import acl, aclnn

from .calls import MEMORY, show
from .memory import Place
from .worker import Tally

COMFORT = ("tensor_from_numpy", "tensor_to_numpy", "set_product", "set_checks", "set_edition")  # these raise
MAKERS = {
    "stream": ("aclrtCreateStream", "aclrtCreateStreamWithConfig"),
    "event": ("aclrtCreateEvent", "aclrtCreateEventWithFlag", "aclrtCreateEventExWithFlag"),
    "context": ("aclrtCreateContext", "aclrtGetCurrentContext"),
    "address": (
        *("aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocCached", "aclrtMallocWithCfg"),
        "aclrtHostRegister",
    ),
    "host": ("aclrtMallocHost", "aclrtMallocHostWithCfg"),
    "tensor": ("aclCreateTensor", "tensor_from_numpy"),
    "list": ("aclCreateTensorList",),
    "array": ("aclCreateIntArray",),
    "bools": ("aclCreateBoolArray",),
    "floats": ("aclCreateFloatArray",),
    "scalar": ("aclCreateScalar",),
    "scalars": ("aclCreateScalarList",),
}
RESULTS = {name: kind for kind, names in MAKERS.items() for name in names}
acl.aclInit(None), acl.aclrtSetDevice(0)
acl.aclrtMalloc(1, 0)  # reserves its addresses, before the worker limits its memory
acl.aclFinalize()


@dataclass(frozen=True)
class Ref:
    """An object that an earlier step made: the last but `back` of its kind, and an offset to an address."""

    kind: str
    back: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.kind}[-{self.back + 1}]" + (f" + {self.offset}" if self.offset else "")


@dataclass
class Step:
    name: str
    arguments: tuple[Any, ...]
    thread: int = 0

    def __str__(self) -> str:
        shown = (str(a) if isinstance(a, Ref) else show(a) for a in self.arguments)
        return f"{self.name}({', '.join(shown)})"


@dataclass
class Program:
    steps: list[Step]
    threads: int
    written: list[Place]

    def __str__(self) -> str:
        return "; ".join(f"{step}" if self.threads == 1 else f"T{step.thread}: {step}" for step in self.steps)

    def run(self, tally: Tally) -> None:
        made: dict[str, list[Any]] = defaultdict(list)
        MEMORY.seal()
        acl.aclInit(None), acl.aclrtSetDevice(0)
        acl.aclGetRecentErrMsg()
        shares = [[step for step in self.steps if step.thread == n] for n in range(self.threads)]
        wrong: list[str] = []
        if self.threads == 1:
            _perform(shares[0], made, tally, wrong)
        else:
            workers = [
                threading.Thread(target=_perform, args=(share, made, tally, wrong)) for share in shares
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        acl.aclFinalize()
        if changed := MEMORY.outside(self.written):
            tally.add(outside=changed)
            tally.find("outside", f"acl changed {changed} bytes outside", str(self))
        for text in wrong:
            tally.find("odd error", text, str(self))


def _perform(steps: list[Step], made: dict[str, list[Any]], tally: Tally, wrong: list[str]) -> None:
    acl.aclGetRecentErrMsg()
    for step in steps:
        function = getattr(acl, step.name, None) or getattr(aclnn, step.name)
        arguments = [_resolve(argument, made) for argument in step.arguments]
        tally.add(calls=1)
        try:
            result = function(*arguments)
        except BaseException as error:
            tally.add(refusals=1)
            if step.name not in COMFORT or not _comfortable(error):
                wrong.append(f"{step.name} raised {type(error).__name__}: {str(error)[:200]}")
            continue
        status = _keep(step.name, result, made)
        tally.add(results=int(status == 0), refusals=int(status != 0))
        if status and (text := _message_fault(step.name, status)):
            wrong.append(text)


def _comfortable(error: BaseException) -> bool:
    """Whether the functions that exist in Python alone may raise this."""
    form = re.fullmatch(r"\w+: .+\.( \[\d+ ACL\w+\])?", str(error), re.S)
    return isinstance(error, MemoryError) or (
        isinstance(error, (TypeError, ValueError, RuntimeError)) and form is not None
    )


def _resolve(argument: Any, made: dict[str, list[Any]]) -> Any:
    if isinstance(argument, list) and any(isinstance(member, Ref) for member in argument):
        return [_resolve(member, made) for member in argument]
    if not isinstance(argument, Ref):
        return argument
    known = made[argument.kind]
    found = known[-1 - argument.back % len(known)] if known else None
    return found + argument.offset if found is not None and argument.offset else found


def _keep(name: str, result: Any, made: dict[str, list[Any]]) -> int:
    """Put what the call made to its kind; returns the status."""
    if name.endswith("GetWorkspaceSize"):
        size, executor, status = result
        if executor is not None:
            made["executor"].append(executor)
            made["size"].append(size)
        return int(status)
    if name == "aclGetRecentErrMsg" or name in (
        "set_product",
        "set_checks",
        "set_edition",
        "tensor_to_numpy",
    ):
        return 0
    if name in RESULTS:
        found, status = result if isinstance(result, tuple) else (result, 0 if result is not None else -1)
        if found is not None:
            made[RESULTS[name]].append(found)
        return int(status)
    if "Error" in name or ("ExceptionInfo" in name and not name.endswith("Callback")):
        return 0  # the result is no status of the call
    return int(result[-1] if isinstance(result, tuple) else result)


def _message_fault(name: str, status: int) -> str | None:
    """What is wrong with the message of a call that failed."""
    text = acl.aclGetRecentErrMsg()
    if text is None:
        return f"{name} gave status {status} without a message"
    if "beyond what can be handled" in text:  # an exception that nobody foresaw
        return f"{name} gave {text[:200]}"
    if not re.fullmatch(r"\w+: .+; .*(must|first|is supported on).*\. \[\d+ ACL\w+\]", text, re.S):
        return f"{name} gave a message of another form: {text[:200]}"
    return None
