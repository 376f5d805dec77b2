"""Puts our overrides into PyTorch's dispatcher, in the places of aten's kernels.

Each backward operator of aten is overridden twice: at the device keys (CPU, CUDA) and at the autograd keys.
gradient_overrides.py has these overrides, index_overrides.py those of max unpools and of the gradients of
fractional max pools, forward_overrides.py those of aten's pools, for patch(forward=True), region_overrides.py
those of torchvision's pools over regions. All overrides stay
in the dispatcher, because other threads may be running them; while no patch is active, they pass every call
to the kernels that they replaced.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F

from ...operators.catalog import operators
from ..aten import ATEN, CPU_KERNELS, OUT_FORMS
from ..pools.pytorch_pools import argument_names
from ..releases import can_call_aten, check_operators, is_tested
from . import compiled_kernels, forward_overrides, gradient_overrides, index_overrides, region_overrides
from .compile_caches import compiled_code, tag_caches
from .compiled_kernels import DEVICE, DROPS_INDICES, GRADIENT, RETURNS_INDICES

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
_numbers: dict[str, int] = {}  # of the operations of compiled kernels
_library: torch.library.Library | None = None
_forward_library: torch.library.Library | None = None


def _arguments() -> dict[str, tuple[str, ...]]:
    """Returns the operators of gradients and unpools that `patch` overrides, and their arguments."""
    arguments = {}
    for function, name in ATEN.items():
        indices = ("indices",) if operators()[function].kind == "maximum_gradient" else ()
        arguments[name] = ("grad_output", "self", *argument_names(function), *indices)
        if form := OUT_FORMS.get(function):
            arguments[form] = (*arguments[name], "grad_input")
    for overload in _BY_INDEX:
        name, _, form = overload.partition(".")
        arguments[overload] = (*index_overrides.ARGUMENTS[name], *([form] if form else []))
    return arguments


def _forward_arguments() -> dict[str, tuple[str, ...]]:
    """Returns the operators of forwards that `patch` overrides, and their arguments."""
    pools = forward_overrides.OPERATORS | forward_overrides.ON_DEVICE
    return {operator: ("self", *argument_names(name)) for operator, name in pools.items()}


def install_forwards() -> None:
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
        for operator in forward_overrides.RETURN_INDICES:
            _override(_forward_library, operator, operator, "Tracer", forward_overrides.on_tracer)
        for device in _devices():
            kernels = {
                operator: _override(
                    _forward_library, operator, operator, device, forward_overrides.on_device, role=DEVICE
                )
                for operator in forward_overrides.ON_DEVICE
            }
            for operator in forward_overrides.OPERATORS:
                role = DROPS_INDICES if operator in forward_overrides.DROP_INDICES else RETURNS_INDICES
                more = kernels.get(operator), device
                make = forward_overrides.on_autograd
                _override(_forward_library, operator, operator, f"Autograd{device}", make, *more, role=role)
    gradient_overrides.reads_offsets = True


def _devices() -> tuple[str, ...]:
    return ("CPU", "CUDA") if torch.version.cuda else ("CPU",)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hides PyTorch's warning that a kernel is overridden, which is what we want."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*verriding a previously registered kernel")
        yield


def install() -> None:
    global _library
    if _library is None:
        if not is_tested():
            check_operators(_arguments())
        _library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        with _without_warnings():
            for device in _devices():
                for function, name in ATEN.items():
                    more = _override(_library, function, name, device, gradient_overrides.on_device), device
                    key = f"Autograd{device}"
                    _override(
                        _library, function, name, key, gradient_overrides.on_autograd, *more, role=GRADIENT
                    )
                    if form := OUT_FORMS.get(function):
                        _override(_library, function, form, device, gradient_overrides.on_device)
                for overload, make in _BY_INDEX.items():
                    _override(_library, overload.partition(".")[0], overload, device, make)
        if not is_tested():
            _check_traces()
        # Code compiled with the patch must not be found without it, nor the reverse.
        tag_caches(lambda: gradient_overrides.depth > 0)
    install_regions()
    if compiled_code():
        warnings.warn(
            "patch: models compiled before it keep the gradients of pools that they were compiled with; "
            "torch.compiler.reset() makes them compile again.",
            stacklevel=4,
        )


def install_regions() -> None:
    """Overrides torchvision's pools over regions, if torchvision is imported by now."""
    if region_overrides.is_there():
        if not is_tested():
            check_operators(region_overrides.arguments(), torch.ops.torchvision)
        with _without_warnings():
            region_overrides.install(_saved_aten_kernel, _devices(), _AGAIN)


def uninstall() -> None:
    global _library
    if not can_call_aten():
        region_overrides.uninstall()
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

    gradient_overrides.depth += 1
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
        gradient_overrides.depth -= 1
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
    role: int | None = None,
) -> Callable[..., Any]:
    """Puts what `make` returns in the place of a kernel of aten; returns that kernel.

    `role`: that of a compiled kernel, which calls what `make` returns only for new calls.
    """
    aten_kernel = _saved_aten_kernel(f"aten::{overload}", key)
    if key == "CPU":
        CPU_KERNELS.setdefault(overload, aten_kernel)
    override = make(function, aten_kernel, *more)
    if role is None or not compiled_kernels.available():
        library.impl(overload, override, key, with_keyset=True, **_AGAIN)  # type: ignore[no-untyped-call]
    else:
        # Operators with the same number and arguments have the same results.
        name = forward_overrides.ON_DEVICE.get(overload, overload)
        name = overload if role in (DROPS_INDICES, GRADIENT) else f"{name} on a device"
        number = _numbers.setdefault(name, len(_numbers))
        compiled_kernels.register(overload, key, role, number, compiled_kernels.with_key(override))
    _clear_dispatch_cache(overload)
    return aten_kernel


def _clear_dispatch_cache(overload: str) -> None:
    """Makes the Python dispatcher look the kernel up again: an earlier trace cached another kernel."""
    name, _, form = overload.partition(".")
    getattr(getattr(torch.ops.aten, name), form or "default")._dispatch_cache.clear()


def _saved_aten_kernel(overload: str, key: str) -> Callable[..., Any]:
    """Returns PyTorch's kernel before we override it; in early releases, a function that raises."""
    if can_call_aten():
        number = torch._C._dispatch_key_parse(key)  # get_kernel does not know every name
        saved: Callable[..., Any] = torch.library.get_kernel(overload, number).call_boxed
        return saved

    def missing(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"{overload}: pooltide's kernels refuse this call, and PyTorch {torch.__version__} has no way "
            "back to its own while they are patched in; remove the patch."
        )

    return missing
