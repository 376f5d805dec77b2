"""Errors that code written for PyTorch catches too.

PyTorch raises RuntimeError for nearly every wrong argument. We raise ValueError, TypeError and IndexError.
A function that replaces one of PyTorch's raises a class that is both.
"""

from __future__ import annotations


class ShapeError(ValueError, RuntimeError):
    """A shape, a size or another value that is wrong."""


class DtypeError(TypeError, RuntimeError):
    """A dtype, or a type of an argument, that is wrong."""


class BadIndexError(IndexError, RuntimeError):
    """An index outside its plane."""


_CLASSES = (ValueError, ShapeError), (TypeError, DtypeError), (IndexError, BadIndexError)


def as_pytorch(error: Exception) -> Exception:
    """The error with the same text in the class that is a RuntimeError too; other errors unchanged."""
    for ours, both in _CLASSES:
        if isinstance(error, ours) and not isinstance(error, RuntimeError):
            return both(str(error))
    return error
