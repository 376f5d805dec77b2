"""Errors that code written for PyTorch catches too.

PyTorch raises RuntimeError for nearly every wrong argument. We raise ValueError, TypeError and IndexError.
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


_CLASSES = (ValueError, ShapeError), (TypeError, DtypeError), (IndexError, BadIndexError)


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
        if (text := str(theirs)) not in str(error):
            return type(error)(f"{error} PyTorch says: {text}")
    except Exception:  # of an odd argument, which may raise anything
        pass
    return error
