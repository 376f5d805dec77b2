"""The way of small calls that were made before: from the tensors to the kernel without Python in between.

`find(function, hint, grad_output, input, indices, attributes)` has the result, or None where it knows no
equal call; `add` makes one known, with its kernel and a tensor that results are like. Nothing is found or
added while the environment chooses a backend, or for a misaligned tensor. They need DLPack's exchange API,
which PyTorch 2.11 and 2.13 have; without it nothing is ever found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from ..kernels import cpu
from ..kernels.plan import ENVIRONMENT


def _table() -> tuple[Callable[..., Any], Callable[..., None]]:
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None or not cpu.BUILT:
        return (lambda *_: None), (lambda *_: None)
    from .. import _native

    table = _native.Shortcuts(
        exchange,
        torch.Tensor,
        torch._C._len_torch_dispatch_stack,
        torch._C._are_functorch_transforms_active,
        torch.is_grad_enabled,
        forward_ad,
        torch.empty_like,
        torch.are_deterministic_algorithms_enabled,
        ENVIRONMENT,
    )
    return table.find, table.add


find, add = _table()
