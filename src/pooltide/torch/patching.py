"""patch(): PyTorch's own pools use our gradients, and with forward=True our forwards.

`patch` overrides each aten backward operator twice: at the device keys (CPU, CUDA) and at the autograd keys.
overrides.py has the overrides, index_overrides.py those of max unpools and of the gradients of fractional max
pools. With forward=True it also overrides aten's pools, at both keys, by the
overrides of forward_overrides.py. All overrides stay in the dispatcher, because other threads may be running
them; after `remove` they pass every call to the kernels that they replaced.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from types import TracebackType
from typing import Any

import torch
import torch.nn.functional as F

from ..operators.catalog import operators
from ..operators.plain import shown
from . import forward_overrides, index_overrides, overrides
from .aten_fallback import ATEN, CPU_KERNELS, OUT_FORMS
from .compiling import between_compilations, compiled_code, tag_caches
from .pytorch_pools import argument_names
from .releases import can_call_aten, check_operators, is_tested

Tensor = torch.Tensor

_BY_INDEX = {
    f"{name}{form}": make
    for names, forms, make in (
        (index_overrides.UNPOOLS, ("", ".out"), index_overrides.unpool),
        (index_overrides.FRACTIONAL, ("", ".grad_input"), index_overrides.fractional),
    )
    for name in names
    for form in forms
}
# When our modules are imported again, the overrides of the first import are still in the dispatcher.
_AGAIN = (
    {"allow_override": True} if "allow_override" in signature(torch.library.Library.impl).parameters else {}
)
_lock = threading.RLock()  # the garbage collector may remove a patch while this thread makes another
_library: torch.library.Library | None = None
_forward_library: torch.library.Library | None = None


class Patch:
    """The handle that `patch` returns: call `remove()`, or use it as a context manager."""

    def __init__(self, forward: bool) -> None:
        self._active, self._forward = True, forward

    def remove(self) -> None:
        """Removes this patch. PyTorch's gradients return with the last removal. Safe to call twice.

        PyTorch's forwards return with the last removal of a patch with forward=True.
        """
        with between_compilations(), _lock:
            if self._active:
                self._active = False
                overrides.depth -= 1
                forward_overrides.depth -= self._forward
                if overrides.depth == 0:
                    _uninstall()

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def patch(forward: bool = False) -> Patch:
    """Makes PyTorch's pools use pooltide's gradients, eager and compiled, until the handle is removed.

    `forward`: eager pools use pooltide's forwards, too, and save one byte per maximum for the gradient.
    """
    if type(forward) is not bool:
        raise TypeError(f"patch: forward is {shown(forward)}; it must be True or False.")
    with between_compilations(), _lock:
        if forward:
            _install_forwards()
        if overrides.depth == 0:
            _install()
        overrides.depth += 1
        forward_overrides.depth += forward
    return Patch(forward)


def is_patched() -> bool:
    return overrides.depth > 0


def _arguments() -> dict[str, tuple[str, ...]]:
    """Returns the operators of gradients and unpools that `patch` overrides, and their arguments."""
    found = {}
    for function, name in ATEN.items():
        indices = ("indices",) if operators()[function].kind == "maximum_gradient" else ()
        found[name] = ("grad_output", "self", *argument_names(function), *indices)
        if form := OUT_FORMS.get(function):
            found[form] = (*found[name], "grad_input")
    for overload in _BY_INDEX:
        name, _, form = overload.partition(".")
        found[overload] = (*index_overrides.ARGUMENTS[name], *([form] if form else []))
    return found


def _forward_arguments() -> dict[str, tuple[str, ...]]:
    """Returns the operators of forwards that `patch` overrides, and their arguments."""
    pools = forward_overrides.OPERATORS | forward_overrides.ON_DEVICE
    return {operator: ("self", *argument_names(name)) for operator, (name, _) in pools.items()}


def _install_forwards() -> None:
    """Overrides aten's pools. The overrides pass every call to PyTorch until the depth is raised."""
    global _forward_library
    if _forward_library is not None:
        return
    if not can_call_aten():
        raise NotImplementedError(
            f"patch: forward is True; it must be False with PyTorch {torch.__version__}, which has no way "
            "back to its own pools while they are patched."
        )
    if not is_tested():
        check_operators(_forward_arguments())
    _forward_library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with _without_warnings():
        for device in _devices():
            kernels = {
                operator: _override(_forward_library, operator, operator, device, forward_overrides.on_device)
                for operator in forward_overrides.ON_DEVICE
            }
            for operator in forward_overrides.OPERATORS:
                more = kernels.get(operator), device
                make = forward_overrides.on_autograd
                _override(_forward_library, operator, operator, f"Autograd{device}", make, *more)


def _devices() -> tuple[str, ...]:
    return ("CPU", "CUDA") if torch.version.cuda else ("CPU",)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hides PyTorch's warning that a kernel is overridden, which is what we want."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*verriding a previously registered kernel")
        yield


def _install() -> None:
    global _library
    if _library is None:
        if not is_tested():
            check_operators(_arguments())
        _library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        with _without_warnings():
            for device in _devices():
                for function, name in ATEN.items():
                    more = _override(_library, function, name, device, overrides.on_device), device
                    _override(_library, function, name, f"Autograd{device}", overrides.on_autograd, *more)
                    if form := OUT_FORMS.get(function):
                        _override(_library, function, form, device, overrides.on_device)
                for overload, make in _BY_INDEX.items():
                    _override(_library, overload.partition(".")[0], overload, device, make)
        if not is_tested():
            _check_traces()
        tag_caches(is_patched)  # code compiled with the patch must not be found without it, nor the reverse
    if compiled_code():
        warnings.warn(
            "patch: models compiled before it keep the gradients of pools that they were compiled with; "
            "torch.compiler.reset() makes them compile again.",
            stacklevel=4,
        )


def _uninstall() -> None:
    global _library
    if not can_call_aten() and _library is not None:
        _library._destroy()  # type: ignore[no-untyped-call]
        _library = None
        for overload in (*ATEN.values(), *OUT_FORMS.values(), *_BY_INDEX):
            _clear_dispatch_cache(overload)


def _check_traces() -> None:
    """Warns if this release of PyTorch traces past our overrides: compiled models then miss the patch."""
    from torch.fx.experimental.proxy_tensor import make_fx  # takes a second

    def step(x: Tensor) -> Any:
        x = x.detach().requires_grad_()
        pools = (getattr(F, function.removesuffix("_backward")) for function in ATEN)
        return torch.autograd.grad(sum(pool(x, 2).sum() for pool in pools), x)

    overrides.depth += 1
    try:
        graph = make_fx(step, tracing_mode="fake")(torch.ones(1, 3, 3, 3)).graph
    except Exception as error:
        warnings.warn(
            f"patch: PyTorch {torch.__version__} cannot trace the patched pools: {error}; "
            "models compiled by it may fail. Eager models use pooltide's gradients.",
            stacklevel=5,
        )
        return
    finally:
        overrides.depth -= 1
    targets = {str(node.target) for node in graph.nodes}
    if missed := [function for function in ATEN if f"pooltide.{function}.default" not in targets]:
        warnings.warn(
            f"patch: PyTorch {torch.__version__} traces {', '.join(missed)} past pooltide; "
            "models compiled by it keep PyTorch's own gradients there.",
            stacklevel=5,
        )


def _override(
    library: torch.library.Library,
    function: str,
    overload: str,
    key: str,
    make: Callable[..., Any],
    *more: Any,
) -> Callable[..., Any]:
    """Puts what `make` returns in the place of a kernel of aten; returns that kernel."""
    aten_kernel = _saved_aten_kernel(f"aten::{overload}", key)
    if key == "CPU":
        CPU_KERNELS.setdefault(overload, aten_kernel)
    library.impl(overload, make(function, aten_kernel, *more), key, with_keyset=True, **_AGAIN)  # type: ignore[no-untyped-call]
    _clear_dispatch_cache(overload)
    return aten_kernel


def _clear_dispatch_cache(overload: str) -> None:
    """Makes the Python dispatcher look the kernel up again: an earlier trace cached another kernel."""
    name, _, form = overload.partition(".")
    getattr(getattr(torch.ops.aten, name), form or "default")._dispatch_cache.clear()


def _saved_aten_kernel(overload: str, key: str) -> Callable[..., Any]:
    """Returns PyTorch's kernel before we override it; in early releases, a function that raises."""
    if can_call_aten():
        saved: Callable[..., Any] = torch.library.get_kernel(overload, key).call_boxed
        return saved

    def missing(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"{overload}: pooltide's kernels refuse this call, and PyTorch {torch.__version__} has no way "
            "back to its own while they are patched in; remove the patch."
        )

    return missing
