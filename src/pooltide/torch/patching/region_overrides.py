"""What runs in the place of torchvision's pools over regions while `patch` is active: forwards and gradients.

The overrides are at the device keys: torchvision's autograd nodes stay, and call them. They pass calls that
our kernels do not take to torchvision's kernels. torchvision's function `roi_align` leaves its operator for a
slow Python program under `torch.use_deterministic_algorithms` on CUDA; `_by_operator` takes the place of that
program. torchvision must be imported before `patch()`; it is not imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ...kernels.plan import NoBackend
from ...operators.catalog import regions
from ..errors import FAULTS, as_pytorch
from ..pools.regions import gradient, pool
from ..tensors import DEVICES, TYPES
from . import gradient_overrides

Tensor = torch.Tensor
_INT = torch.int32  # of indices and channel numbers
# torchvision's arguments after the tensors, in the order of its schemas
_SIZE, _PLANE = ("pooled_height", "pooled_width"), ("batch_size", "channels", "height", "width")
_ATTRIBUTES = {
    "roi_align": (*_SIZE, "sampling_ratio", "aligned"),
    "roi_pool": _SIZE,
    "ps_roi_align": (*_SIZE, "sampling_ratio"),
    "ps_roi_pool": _SIZE,
}
_OF_GRADIENTS = {
    "roi_align": (*_SIZE, *_PLANE, "sampling_ratio", "aligned"),
    "roi_pool": (*_SIZE, *_PLANE),
    "ps_roi_align": (*_SIZE, "sampling_ratio", *_PLANE),
    "ps_roi_pool": (*_SIZE, *_PLANE),
}
_library: torch.library.Library | None = None
_python_program: Any = None  # torchvision's


def arguments() -> dict[str, tuple[str, ...]]:
    """Returns torchvision's operators and their arguments."""
    found: dict[str, tuple[str, ...]] = {}
    for name, attributes in _ATTRIBUTES.items():
        found[name] = ("input", "rois", "spatial_scale", *attributes)
        saved = {"roi_align": (), "roi_pool": ("argmax",)}.get(name, ("channel_mapping",))
        found[f"_{name}_backward"] = ("grad", "rois", *saved, "spatial_scale", *_OF_GRADIENTS[name])
    return found


def is_there() -> bool:
    """Whether torchvision is imported, with its compiled operators."""
    return "torchvision.ops.roi_align" in sys.modules and hasattr(torch.ops.torchvision, "roi_align")


def install(
    saved_kernel: Callable[[str, str], Callable[..., Any]], devices: tuple[str, ...], options: dict[str, bool]
) -> None:
    """Overrides torchvision's operators; `saved_kernel` returns the kernel of an operator for a device key.

    `options`: of `Library.impl`.
    """
    global _library, _python_program
    if _library is not None or not is_there():
        return
    _library = torch.library.Library("torchvision", "IMPL")  # type: ignore[no-untyped-call]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # a torchvision for the CPU has none for CUDA
    for device in devices:
        if not has_kernel("torchvision::roi_align", device):
            continue
        for name in _ATTRIBUTES:
            for operator, make in ((name, _forward), (f"_{name}_backward", _gradient)):
                theirs = saved_kernel(f"torchvision::{operator}", device)
                _library.impl(operator, make(name, theirs), device, with_keyset=True, **options)  # type: ignore[no-untyped-call]
                getattr(torch.ops.torchvision, operator).default._dispatch_cache.clear()
    module = sys.modules["torchvision.ops.roi_align"]
    _python_program = getattr(module, "_roi_align", None)
    if _python_program is not None:
        vars(module)["_roi_align"] = _by_operator(_python_program)


def uninstall() -> None:
    """Removes the overrides, for releases that cannot call a kernel that is overridden."""
    global _library
    if _library is not None:
        _library._destroy()  # type: ignore[no-untyped-call]
        _library = None
        vars(sys.modules["torchvision.ops.roi_align"])["_roi_align"] = _python_program


def _by_operator(program: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(program)
    def roi_align(input: Tensor, rois: Tensor, *rest: Any) -> Tensor:
        ours = gradient_overrides.depth and hasattr(torch.ops.torchvision, "roi_align")
        pooled: Tensor = (torch.ops.torchvision.roi_align if ours else program)(input, rois, *rest)
        return pooled

    return roi_align


def _takes(*tensors: Tensor) -> bool:
    """Whether our kernels take such tensors. torchvision raises for tensors of different dtypes."""
    first, *rest = tensors
    known = first.dtype in TYPES and first.is_floating_point() and first.device.type in DEVICES
    return bool(gradient_overrides.depth) and known and all(t.dtype == first.dtype for t in rest)


def _forward(name: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    def override(keys: Any, input: Tensor, rois: Tensor, scale: float, ph: int, pw: int, *rest: Any) -> Any:
        if not _takes(input, rois):
            return theirs(keys, input, rois, scale, ph, pw, *rest)
        try:
            # torchvision's results are contiguous
            values, places = pool(name, input.contiguous(), rois, ((ph, pw), scale, *rest), True)
        except NoBackend:
            return theirs(keys, input, rois, scale, ph, pw, *rest)
        except FAULTS as fault:
            raise as_pytorch(fault) from None
        if name == "roi_align":
            return values
        if places is None:  # the input channel of each bin
            shape = values.shape
            numbers = torch.arange(shape[1:].numel(), dtype=_INT, device=values.device)
            return values, numbers.view(1, *shape[1:]).expand(shape).contiguous()
        return values, places.to(_INT)

    return override


def _gradient(name: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    function, names = f"{name}_backward", _OF_GRADIENTS[name]
    indexed = regions()[function].by_role("indices") is not None

    def override(keys: Any, grad: Tensor, rois: Tensor, *rest: Any) -> Tensor:
        saved, scale, *numbers = (None, *rest) if name == "roi_align" else rest
        if not _takes(grad, rois):
            return theirs(keys, grad, rois, *rest)  # type: ignore[no-any-return]
        given = dict(zip(names, numbers, strict=True))
        shape = tuple(given[size] for size in _PLANE)
        attributes = (
            () if indexed else (scale, *(given[a] for a in ("sampling_ratio", "aligned") if a in given))
        )
        try:
            return gradient(function, grad, shape, rois, saved if indexed else None, attributes, False)
        except NoBackend:
            return theirs(keys, grad, rois, *rest)  # type: ignore[no-any-return]
        except FAULTS as fault:
            raise as_pytorch(fault) from None

    return override
