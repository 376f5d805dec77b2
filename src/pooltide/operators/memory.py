"""The sentences for calls that find no memory."""

from __future__ import annotations

import os

import numpy as np

_MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes of memory


def too_large(name: str, error: MemoryError) -> MemoryError:
    """The sentence for a call that finds no memory; an error that is such a sentence already stays."""
    if str(error).startswith(f"{name}: "):
        return error
    return MemoryError(f"{name}: the call has no room ({error or 'out of memory'}); it must be smaller.")


def reserve(name: str, nbytes: int) -> None:
    """Raises MemoryError where a result of so many bytes has no room, before tables as long are made.

    A system that promises more memory than it has would let the call run for hours.
    """
    if nbytes > _MACHINE:
        raise too_large(name, MemoryError(f"{nbytes} bytes of {_MACHINE} on this machine"))
    try:
        np.empty(nbytes, np.uint8)
    except MemoryError as error:
        raise too_large(name, error) from None
