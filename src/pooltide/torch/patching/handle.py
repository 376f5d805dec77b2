"""patch(): PyTorch's own pools use our gradients, and with forward=True our forwards.

`patch()` returns a `Patch`, which removes it. Several patches may be active; the overrides, which stay in the
dispatcher, ask how many there are. installation.py puts them there.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from ...operators.plain import shown
from . import compiled_kernels, forward_overrides, gradient_overrides
from .compile_caches import between_compilations
from .installation import install, install_forwards, install_regions, uninstall

P = ParamSpec("P")
R = TypeVar("R")
_RUNS_LATER = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
_era = 0  # handles of an earlier one are removed
_lock = threading.RLock()  # the garbage collector may remove a patch while this thread makes another


class Patch:
    """The handle that `patch` returns: call `remove()`, or use it as a context manager or as a decorator."""

    def __init__(self, forward: bool) -> None:
        self._active, self._forward, self._era = True, forward, _era

    def __repr__(self) -> str:
        what = "gradients and forwards" if self._forward else "gradients"
        return f"<pooltide.torch.Patch of {what}, {'active' if self._is_active() else 'removed'}>"

    def _is_active(self) -> bool:
        return self._active and self._era == _era

    def remove(self) -> None:
        """Removes this patch. PyTorch's gradients return with the last removal. Safe to call twice.

        PyTorch's forwards return with the last removal of a patch with forward=True.
        """
        with between_compilations(), _lock:
            if self._is_active():
                gradient_overrides.depth -= 1
                forward_overrides.depth -= self._forward
                _activate()
                if gradient_overrides.depth == 0:
                    uninstall()
            self._active = False

    def __enter__(self) -> Patch:
        if not self._is_active():
            raise RuntimeError("patch: the handle was removed; it must be active. Call patch() again.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Returns the function with a patch around each call. The patch of this handle is removed."""
        forward = self.__enter__()._forward
        self.remove()
        if not callable(function):
            raise TypeError(f"patch: it decorates {shown(function)}; it must be a function.")
        if isinstance(function, type) or any(check(function) for check in _RUNS_LATER):
            raise TypeError(
                f"patch: it decorates {shown(function)}, whose code runs after the call; it must be a "
                "function without yield or async. Use `with pooltide.torch.patch():` around the code."
            )

        @wraps(function)
        def patched(*arguments: P.args, **options: P.kwargs) -> R:
            with patch(forward=forward):
                return function(*arguments, **options)

        return patched


def unpatch() -> None:
    """Removes all patches, also those whose handles are gone."""
    global _era
    with between_compilations(), _lock:
        _era += 1
        if gradient_overrides.depth:
            gradient_overrides.depth = forward_overrides.depth = 0
            _activate()
            uninstall()


def patch(forward: bool = False) -> Patch:
    """Makes PyTorch's pools use pooltide's gradients, eager and compiled, until the handle is removed.

    `forward`: eager pools use pooltide's forwards, too, and save one byte per maximum for the gradient.
    """
    if type(forward) is not bool:
        raise TypeError(f"patch: forward is {shown(forward)}; it must be True or False.")
    with between_compilations(), _lock:
        if forward:
            install_forwards()
        if gradient_overrides.depth == 0:
            install()
        else:
            install_regions()
        gradient_overrides.depth += 1
        forward_overrides.depth += forward
        _activate()
    return Patch(forward)


def _activate() -> None:
    compiled_kernels.activate(forward_overrides.depth > 0, gradient_overrides.depth > 0)


def is_patched() -> bool:
    return gradient_overrides.depth > 0
