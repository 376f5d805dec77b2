"""patch(): PyTorch's own pools use our gradients.

`patch` overrides each aten backward operator twice: at the device keys (CPU, CUDA) and at the autograd keys.
The autograd override runs first. It calls our kernel directly if nothing traces or transforms the call.
Under tracing it puts `torch.ops.pooltide.*` into the graph, which no compiler replaces (Inductor's gradient
of avg_pool2d is wrong for overhanging windows in ceil mode). Any other call it passes to PyTorch's autograd
kernel, which then calls the device override.

The overrides stay in the dispatcher, because other threads may be running them; after `remove` they pass
every call to the kernels that they replaced.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any
from zlib import crc32

import torch
import torch.nn.functional as F
from torch._prims_common.wrappers import _maybe_resize_out

from .. import __version__
from ..kernels.plan import NoBackend
from ..operators.catalog import operators
from . import devices
from .aten_fallback import ATEN, warn_once
from .autograd import differentiable
from .errors import DtypeError, as_pytorch
from .gradients import may_skip_dispatcher, shares_memory, tensor_may_skip_dispatcher
from .operators import ARRAYS, AXES, FUNCTIONS, schema
from .prepared import compute, prepare_gradient
from .shortcuts import add, find
from .tensors import TYPES, check_memory, is_channels_last, memory_format

Tensor = torch.Tensor
# With the schemas: cached code that calls our operators with the arguments of another schema would fail.
CACHE_TAG = f"pooltide.patch {__version__} {crc32(''.join(map(schema, FUNCTIONS)).encode()):x};"
TRACED_BY = "2.13."  # this release traces through our override; `patch` tests any other release

# The out forms with their own kernels; _adaptive_avg_pool2d_backward.out calls the functional form.
_OUT = {
    function: f"{name.removeprefix('_')}.grad_input"
    for function, name in ATEN.items()
    if function != "adaptive_avg_pool2d_backward"
}
_INDEXED = {function for function in ATEN if operators()[function].kind == "maximum_gradient"}
# aten's results of these are contiguous for every input
_FORMATLESS = {"adaptive_avg_pool3d_backward", "adaptive_max_pool3d_backward", "avg_pool3d_backward"}
_FLOATS = {dtype for dtype in TYPES if dtype.is_floating_point}

_FAULTS = (TypeError, ValueError, IndexError)
_grad_enabled = torch.is_grad_enabled

# Replaces the result layout in the key of shortcuts made here. Direct calls must not find these shortcuts,
# because direct calls may have to check indices.
_PATCHED = "patched"

_lock = threading.Lock()
_depth = 0
_library: torch.library.Library | None = None


class Patch:
    """The handle that `patch` returns: call `remove()`, or use it as a context manager."""

    def __init__(self) -> None:
        self._active = True

    def remove(self) -> None:
        """Removes this patch. PyTorch's gradients return with the last removal. Safe to call twice."""
        global _depth
        with _lock:
            if self._active:
                self._active = False
                _depth -= 1
                if _depth == 0:
                    _uninstall()

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def patch() -> Patch:
    """Makes PyTorch's pools use pooltide's gradients, eager and compiled, until the handle is removed."""
    global _depth
    with _lock:
        if _depth == 0:
            _install()
        _depth += 1
    return Patch()


def is_patched() -> bool:
    return _depth > 0


def _install() -> None:
    global _library
    if _library is None:
        _library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(?s).*verriding a previously registered kernel")
            for device in ("CPU", "CUDA") if torch.version.cuda else ("CPU",):
                for function, name in ATEN.items():
                    _override(_library, function, name, device, _device_override)
                    _override(_library, function, name, f"Autograd{device}", _autograd_override)
                    if form := _OUT.get(function):
                        _override(_library, function, form, device, _device_override)
        if not torch.__version__.startswith(TRACED_BY):
            _check_traces()
    config = torch.compiler.config
    if hasattr(config, "cache_key_tag"):  # code compiled without the patch must not be found with it
        config.cache_key_tag += CACHE_TAG
    if _compiled_graphs():
        warnings.warn(
            "patch: models compiled before it keep the gradients of pools that they were compiled with; "
            "torch.compiler.reset() makes them compile again.",
            stacklevel=4,
        )


def _uninstall() -> None:
    global _library
    config = torch.compiler.config
    if hasattr(config, "cache_key_tag"):
        config.cache_key_tag = config.cache_key_tag.replace(CACHE_TAG, "")
    if not hasattr(torch.library, "get_kernel") and _library is not None:
        _library._destroy()  # type: ignore[no-untyped-call]
        _library = None
        for overload in (*ATEN.values(), *_OUT.values()):
            _clear_dispatch_cache(overload)


def _check_traces() -> None:
    """Warns if this release of PyTorch traces past our overrides: compiled models then miss the patch."""
    global _depth
    from torch.fx.experimental.proxy_tensor import make_fx  # takes a second

    def step(x: Tensor) -> Any:
        x = x.detach().requires_grad_()
        pools = (getattr(F, function.removesuffix("_backward")) for function in ATEN)
        return torch.autograd.grad(sum(pool(x, 2).sum() for pool in pools), x)

    _depth += 1
    try:
        targets = {
            str(node.target)
            for node in make_fx(step, tracing_mode="fake")(torch.ones(1, 3, 3, 3)).graph.nodes
        }
    finally:
        _depth -= 1
    if missed := [function for function in ATEN if f"pooltide.{function}.default" not in targets]:
        warnings.warn(
            f"patch: PyTorch {torch.__version__} traces {', '.join(missed)} past pooltide; "
            "models compiled by it keep PyTorch's own gradients there.",
            stacklevel=5,
        )


def _compiled_graphs() -> int:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters["stats"]["unique_graphs"] if dynamo is not None else 0


def _override(
    library: torch.library.Library, function: str, overload: str, key: str, make: Callable[..., Any]
) -> None:
    aten_kernel = _saved_aten_kernel(f"aten::{overload}", key)
    library.impl(overload, make(function, aten_kernel), key, with_keyset=True)  # type: ignore[no-untyped-call]
    _clear_dispatch_cache(overload)


def _clear_dispatch_cache(overload: str) -> None:
    """Makes the Python dispatcher look the kernel up again: an earlier trace cached another kernel."""
    name, _, form = overload.partition(".")
    getattr(getattr(torch.ops.aten, name), form or "default")._dispatch_cache.clear()


def _saved_aten_kernel(overload: str, key: str) -> Callable[..., Any]:
    """Returns PyTorch's kernel before we override it; in early releases, a function that raises."""
    if hasattr(torch.library, "get_kernel"):
        saved: Callable[..., Any] = torch.library.get_kernel(overload, key).call_boxed
        return saved

    def missing(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"{overload}: pooltide's kernels refuse this call, and PyTorch {torch.__version__} has no way "
            "back to its own while they are patched in; remove the patch."
        )

    return missing


def _device_override(function: str, aten_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the override for a device key, for the functional and the out form."""

    def override(
        keys: Any, grad_output: Tensor, x: Tensor, *rest: Any, grad_input: Tensor | None = None
    ) -> Tensor:
        given = {} if grad_input is None else {"grad_input": grad_input}
        if _depth:
            _check(function, grad_output, x, rest)
        result_layout = False if function in _FORMATLESS else x.stride()
        reason = _refusal(grad_output)
        if _depth and reason is None:
            try:
                return _computed(function, grad_output, x, result_layout, rest, grad_input)
            except NoBackend as refusal:
                reason = str(refusal)
        if _depth:
            warn_once(function, reason or "")
        return aten_kernel(keys, grad_output, x, *rest, **given)  # type: ignore[no-any-return]

    return override


def _autograd_override(function: str, aten_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the override for an autograd key, for the functional form."""
    axes, indexed = AXES[function], function in _INDEXED

    def override(keys: Any, grad_output: Tensor, x: Tensor, *rest: Any) -> Tensor:
        if not _depth:
            return aten_kernel(keys, grad_output, x, *rest)  # type: ignore[no-any-return]
        indices, attributes = (rest[-1], rest[:-1]) if indexed else (None, rest)
        result = find(function, _PATCHED, grad_output, x, indices, attributes)
        if result is not None:
            return result  # type: ignore[no-any-return]
        _check(function, grad_output, x, rest)
        tracked = _grad_enabled() and x.requires_grad
        if grad_output.is_cpu or devices.missing(grad_output.device) is None:
            if may_skip_dispatcher(grad_output, indices) and tensor_may_skip_dispatcher(x):
                try:
                    return _computed(function, grad_output, x, x.stride(), rest, None)
                except (NoBackend, TypeError):
                    pass  # the device override reports the reason
            elif _traced(grad_output) and grad_output.dtype in _FLOATS:
                channels_last = is_channels_last(x, axes)
                given = attributes if indices is None else (indices, *attributes)
                try:
                    found = differentiable(
                        function, grad_output, x.shape[-axes:], *given, channels_last, False, True
                    )
                except _FAULTS as fault:
                    raise as_pytorch(fault) from None
                return _DependOnInput.apply(found, x) if tracked else found  # type: ignore[no-untyped-call]
        return aten_kernel(keys, grad_output, x, *rest)  # type: ignore[no-any-return]

    return override


def _check(function: str, grad_output: Any, x: Any, rest: tuple[Any, ...]) -> None:
    """Raises for tensors that would crash any kernel, and for None, which the dispatcher accepts."""
    for name, tensor in (("grad_output", grad_output), ("self", x)):
        if tensor is None:
            raise DtypeError(f"{function}: {name} is None; it must be a tensor.")
    try:
        check_memory(function, grad_output, rest[-1] if function in _INDEXED else None)
    except ValueError as error:
        raise as_pytorch(error) from None


class _DependOnInput(torch.autograd.Function):
    """Makes a gradient depend on the forward's input with derivative zero, like PyTorch's gradient."""

    @staticmethod
    def forward(ctx: Any, found: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return found.view_as(found)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, torch.zeros_like(ctx.saved_tensors[0])


def _refusal(grad_output: Tensor) -> str | None:
    """Returns why our kernels cannot take this dtype or device; None if they can."""
    if grad_output.dtype not in _FLOATS:
        return f"it has no kernel for {grad_output.dtype}"
    return None if grad_output.is_cpu else devices.missing(grad_output.device)


def _traced(grad_output: Tensor) -> bool:
    """Whether a dispatch mode or a tensor subclass sees the call, outside torch.func."""
    if torch._C._are_functorch_transforms_active():
        return False
    return torch._C._len_torch_dispatch_stack() > 0 or type(grad_output) is not Tensor


def _computed(
    function: str,
    grad_output: Tensor,
    x: Tensor,
    result_layout: Any,
    rest: tuple[Any, ...],
    out: Tensor | None,
) -> Tensor:
    """Runs our kernel with the arguments of aten's operator and returns the gradient; raises NoBackend."""
    indices, given = (rest[-1], rest[:-1]) if function in _INDEXED else (None, rest)
    arrays = ARRAYS[function]
    attributes = (*map(tuple, given[:arrays]), *given[arrays:])
    if out is not None:
        axes = AXES[function]
        channels_last = function not in _FORMATLESS and is_channels_last(x, axes)
        _maybe_resize_out(out, x.shape, memory_format(channels_last, axes))
        if shares_memory(out, grad_output, indices):
            grad_output, indices = grad_output.clone(), None if indices is None else indices.clone()
    try:
        check_memory(function, None, None, out)
        prepared = prepare_gradient(function, grad_output, x, result_layout, indices, attributes, out)
        result = compute(prepared, grad_output, indices, out, check_indices=False)
    except _FAULTS as fault:
        raise as_pytorch(fault) from None
    if prepared.shortcut and result_layout is not False and (kernel := prepared.shortcut()):
        add(function, _PATCHED, grad_output, x, indices, given, kernel, prepared.template)
    return result
