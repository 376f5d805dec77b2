"""Calls on tensors that were made before: compiled code runs their kernels, with no Python in between.

`find(function, result_layout, grad_output, input, indices, attributes, out)` runs a call with equal metadata
from the cache (kernels/calls.py) and returns the result, or None if there is no such call.
`add(…, kernel, template)` takes the same arguments, the kernel, and a tensor that a new result resembles.
Both do nothing while an environment variable selects the backend, and for misaligned tensors.
They need DLPack's exchange API, which PyTorch 2.10 to 2.15 have; without it `find` returns None.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from ..kernels import cpu
from ..kernels.calls import CALLS
from ..kernels.plan import BACKEND_VARIABLE, VARIABLES
from .openmp import num_threads
from .tensors import is_cow

# () -> whether make_fx(…, pre_dispatch=True) may trace this thread. Its modes have a stack of their own, and
# leave it to run an operator; the Python dispatcher, which they need, is on all the time.
pre_dispatch: Callable[[], bool] = partial(
    torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PythonDispatcher
)


def _functions() -> tuple[Callable[..., Any], Callable[..., bytes | None]]:
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None or not cpu.BUILT:
        return (lambda *_: None), (lambda *_: None)
    from .. import _native

    shortcuts = _native.Shortcuts(
        exchange,
        torch.Tensor,
        torch._C._len_torch_dispatch_stack,
        pre_dispatch,
        torch._C._are_functorch_transforms_active,
        torch.is_grad_enabled,
        forward_ad,
        torch.empty_like,
        torch.are_deterministic_algorithms_enabled,
        torch.Tensor.is_neg,
        is_cow,
        torch.Tensor.untyped_storage,
        torch.Tensor.storage_offset,
        torch.Tensor.is_inference,
        increment_version,
        num_threads,
        CALLS.known,
        VARIABLES,
        BACKEND_VARIABLE,
    )
    return shortcuts.find, shortcuts.key


find, _key = _functions()


def add(function: str, *rest: Any) -> None:
    *arguments, kernel, template = rest
    CALLS.add(_key(function, *arguments), (function, kernel, template), cpu.tables_of(kernel))
