"""Compiled kernels in the places of PyTorch's: calls that were made before, with no Python.

`register` puts a kernel of native/python/aten.cpp in the place of PyTorch's, for an operator and a dispatch
key. For a call that the cache (kernels/calls.py) does not have, that kernel calls a Python function with the
call's key, and the function calls `remember` with the kernel that computed the call.
Releases of PyTorch before 2.10 lack the C functions; there, and with releases that are not in
`releases.COMPILED`, `available()` is False, and Python functions are registered instead.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache, reduce
from operator import or_
from struct import pack
from typing import Any

import torch
from torch.autograd import forward_ad

from ...kernels import cpu
from ...kernels.calls import CALLS
from ...kernels.plan import BACKEND_VARIABLE, VARIABLES
from ..openmp import num_threads
from ..releases import COMPILED, can_call_aten, is_tested

DEVICE, DROPS_INDICES, RETURNS_INDICES, GRADIENT = range(4)  # the roles of aten.cpp
INT64, UINT8, SAME = 4, 0, -1  # PyTorch's numbers of dtypes; SAME: that of the first tensor
_IMPL_BYTES = 192  # a TensorImpl has more


@cache
def available() -> bool:
    """Whether compiled kernels can be registered; sets them up."""
    if not (cpu.BUILT and is_tested(COMPILED) and can_call_aten()) or (at := _keys_at()) is None:
        return False
    from ... import _native

    library = ctypes.CDLL(sys.modules["torch._C"].__file__)  # with the libraries that it needs
    try:
        addresses = tuple(
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _native.aten_symbols()
        )
        # The function for one tensor, without the s, does not free the handle.
        handles = sys.modules["torch._C._aoti"]  # releases differ in what they have
        convert = handles.alloc_tensors_by_stealing_from_void_ptrs
        back = handles.unsafe_alloc_void_ptr_from_tensor
    except (AttributeError, KeyError):
        return False
    _native.aten_setup(
        addresses,
        at,
        tuple(_plain_keys(device, inference) for inference in (False, True) for device in ("CPU", "CUDA")),
        int(torch._C.DispatchKey.PythonDispatcher),  # type: ignore[call-overload]
        torch._C._len_torch_dispatch_stack,
        torch._C._are_functorch_transforms_active,
        forward_ad,
        torch.are_deterministic_algorithms_enabled,
        num_threads,
        CALLS.known,
        VARIABLES,
        BACKEND_VARIABLE,
        convert,
        back,
    )
    return True


def _plain_keys(device: str, inference: bool) -> int:
    """Returns the dispatch keys of a normal tensor, as a number."""
    names = [device, f"Autocast{device}"]
    names += [] if inference else [f"Autograd{device}", "ADInplaceOrView"]
    sets = [torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)) for name in names]
    return int(reduce(or_, sets).raw_repr())


def _keys_at() -> int | None:
    """Returns where a TensorImpl has its dispatch keys; None if that is not certain.

    No C function tells them. Tensors with different keys must all have them at one place.
    """
    x = torch.ones(2)
    with torch.inference_mode():
        inference = torch.ones(2)
    samples = (x, x._neg_view(), x.to("meta"), x.to_sparse(), inference, torch.nn.Parameter(x))
    numbers = [int(torch._C._dispatch_keys(sample).raw_repr()) for sample in samples]
    if numbers[0] != _plain_keys("CPU", False) or numbers[4] != _plain_keys("CPU", True):
        return None
    places = set(range(0, _IMPL_BYTES, 8))
    for sample, number in zip(samples, numbers, strict=True):
        words = (ctypes.c_uint64 * (_IMPL_BYTES // 8)).from_address(sample._cdata)
        places &= {8 * i for i, word in enumerate(words) if word == number}
    return places.pop() if len(places) == 1 and len(set(numbers)) >= 5 else None


def register(
    overload: str,
    key: str,
    role: int,
    number: int,
    python: Callable[..., Any],
) -> None:
    """Puts a compiled kernel in the place of PyTorch's.

    `number`: of the operation, in the keys of calls. `python` takes the key or None, whether offsets are
    wanted, and the operator's arguments.
    """
    from ... import _native

    schema = getattr(torch.ops.aten, overload).default._schema
    kinds = {"Tensor": "t", "bool": "b", "Optional[int]": "o", "List[int]": "l"}
    arguments = "".join(kinds[str(argument.type)] for argument in schema.arguments)
    recorded, keys = _recorded(overload, key, role)
    _native.aten_kernel(overload, key, role, arguments, len(schema.returns), number, python, recorded, keys)


def _recorded(overload: str, key: str, role: int) -> tuple[int, int]:
    """Returns the address of the C++ function that lets autograd record a maximum, and the keys it takes.

    The address is 0 if there is none; Python then makes such calls. For a maximum without indices it is the
    operator with indices. An adaptive maximum must not come back to our kernel, at the autograd key of the
    device; PyTorch's kernel is also at that of other devices, and works with the device's own key behind it.
    """
    names = torch._C.DispatchKey
    if role == DROPS_INDICES:
        name = f"{overload}_with_indices"
        symbol = f"_ZN2at4_ops{len(name)}{name}4callERKNS_6TensorEN3c108ArrayRefIlEES7_S7_S7_b"
        keys = 0
    elif role == RETURNS_INDICES:
        takes = "N3c1014DispatchKeySetERKNS_6TensorENS2_8ArrayRefIlEE"
        symbol = f"_ZN2at4_ops{len(overload)}{overload}10redispatchE{takes}"
        device = getattr(names, key.removeprefix("Autograd"))
        both = torch._C.DispatchKeySet(names.AutogradOther) | torch._C.DispatchKeySet(device)
        keys = int(both.raw_repr())
    else:
        return 0, 0
    function = getattr(ctypes.CDLL(sys.modules["torch._C"].__file__), symbol, None)
    return (0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0), keys


def remember(
    key: bytes | None,
    owner: Any,
    kernel: Any,
    results: Sequence[tuple[int, Any, Any, int]],
    copies: Sequence[tuple[int, Any, Any, int]] = (),
) -> None:
    """Adds a call to the cache: the kernel, and dtype, sizes, strides and bytes of each result.

    `copies`: the tensors that are copied for the kernel, each with its number in place of the dtype.
    """
    numbers: list[int] = []
    for number, sizes, strides, nbytes in (*results, *copies):
        numbers += [number, nbytes, len(sizes), *sizes, *strides]
    if key is not None:
        CALLS.add(key, (owner, kernel, pack(f"{len(numbers)}q", *numbers)), cpu.tables_of(kernel))


def want_offsets(address: int) -> int:
    """Says that the next maximum of the tensor whose TensorImpl, or data, is at this address returns offsets.

    That is a maximum at a device key, in this thread. 0: none does. Returns the address before.
    """
    if not available():
        return 0
    from ... import _native

    return _native.aten_want_offsets(address)


def activate(forwards: bool, gradients: bool) -> None:
    """Says whether compiled kernels compute calls; if not, Python functions get all of them."""
    if available():
        from ... import _native

        _native.aten_activate(forwards, gradients)


def with_key(override: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the override as compiled kernels call it."""

    def python(key: bytes | None, offsets: bool, *arguments: Any) -> Any:
        return override(keys_of(arguments), *arguments, key=key, offsets=offsets)

    return python


def keys_of(arguments: Sequence[Any]) -> Any:
    """Returns the dispatch keys of a call with these tensors that are still ahead of an autograd kernel."""
    keys = torch._C._dispatch_tls_local_include_set()
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            keys = keys | torch._C._dispatch_keys(argument)
    return keys - torch._C._dispatch_tls_local_exclude_set() - _PASSED


# The pools have no kernels for these keys, or autocast's are behind.
_PASSED = reduce(
    or_,
    (
        torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
        for name in ("BackendSelect", "ADInplaceOrView", "AutocastCPU", "AutocastCUDA")
    ),
)
