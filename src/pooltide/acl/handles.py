"""Takes an argument that must be a handle: an opaque object such as a tensor, a stream or an executor.

Returns the argument if it is a live handle of the right class, else refuses the call with a sentence. It must
not touch what a handle stands for, such as memory or queued jobs.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypeVar

from .error_reports import ACLNN_INVALID, Refused, describe


class Handle(Protocol):
    must_be: ClassVar[str]  # for messages: "a live aclTensor of aclCreateTensor"
    alive: bool


H = TypeVar("H", bound=Handle)


def handle_fault(handle: Any, kind: type[Handle]) -> tuple[str, str] | None:
    """None for a live handle of this kind; else ("is an int, 7", "a live aclTensor of aclCreateTensor")."""
    if not isinstance(handle, kind):
        return f"is {describe(handle)}", kind.must_be
    return None if handle.alive else ("was destroyed", kind.must_be)


def require_live(
    name: str, handle: Any, kind: type[H], status: int = ACLNN_INVALID, null_status: int | None = None
) -> H:
    """The argument `name`. Raises Refused unless it is a live handle of this kind.

    `null_status` is the status for null, if null has its own.
    """
    if fault := handle_fault(handle, kind):
        raise Refused(
            null_status or status if handle is None else status, f"{name} {fault[0]}; it must be {fault[1]}."
        )
    live: H = handle
    return live


def destroy(name: str, handle: Any, kind: type[Handle]) -> int:
    """Mark a live handle as destroyed, unless it is null. Returns 0, or raises Refused."""
    if handle is not None:
        require_live(name, handle, kind).alive = False
    return 0


def destroyed_mark(alive: bool) -> str:
    """What the text of a handle adds when the handle was destroyed."""
    return "" if alive else ", destroyed"
