"""Errors that code written for PyTorch catches too.

PyTorch raises RuntimeError for nearly every wrong argument, and where it finds no memory. We raise
ValueError, TypeError, IndexError and MemoryError.
A function that replaces one of PyTorch's raises a class that is both.
Its text also has PyTorch's text for the same call, because programs and tests look for that.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


class ShapeError(ValueError, RuntimeError):
    """A shape, a size or another value that is wrong."""


class DtypeError(TypeError, RuntimeError):
    """A dtype, or a type of an argument, that is wrong."""


class BadIndexError(IndexError, RuntimeError):
    """An index outside its plane."""


class NoRoomError(MemoryError, RuntimeError):
    """A call that finds no memory."""


_CLASSES = (
    (ValueError, ShapeError),
    (TypeError, DtypeError),
    (IndexError, BadIndexError),
    (MemoryError, NoRoomError),
)
FAULTS = tuple(ours for ours, _ in _CLASSES)  # what `as_pytorch` translates


def as_pytorch(error: Exception) -> Exception:
    """The error with the same text in the class that is a RuntimeError too; other errors unchanged."""
    for ours, both in _CLASSES:
        if isinstance(error, ours) and not isinstance(error, RuntimeError):
            return both(str(error))
    return error


def with_text_of(error: Exception, call: Callable[[], object]) -> Exception:
    """Returns the error with PyTorch's text after ours. `call` is the same call of PyTorch's own operator.

    If `call` returns, PyTorch does not refuse the arguments, and the error is returned unchanged.
    """
    try:
        with torch.no_grad():
            call()
    except (RuntimeError, TypeError, ValueError, IndexError) as theirs:
        return joined(error, str(theirs))
    except Exception:  # of an odd argument, which may raise anything
        pass
    return error


def joined(error: Exception, text: str) -> Exception:
    """Returns the error with PyTorch's text after ours, if ours does not have it."""
    return error if text in str(error) else type(error)(f"{error} PyTorch says: {text}")
