"""PyTorch's own gradient of a case, as contestants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..acceptance.notation import Case
from ..acceptance.verdicts import bits_of
from ..operators.pages import HOST
from ..torch.aten_fallback import aten_call as named
from ..torch.tensors import memory_format
from .entries import Runners, Wrong, attributes_of

Array = NDArray[Any]


def torch_tensor(case: Case, array: Array) -> Any:
    if case.dtype.name == "BFLOAT16" and array.itemsize == 2:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def in_layout(case: Case, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the layout of the case; PyTorch has channels-last only for batches of 2-D and 3-D."""
    axes = len(case.operator.axes)
    last = case.channels_last and tensor.dim() == axes + 2
    return tensor.contiguous(memory_format=memory_format(last, axes))


def aten_call(
    case: Case, grad: Any, x: Any, indices: Any, result: Any
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two calls of PyTorch's gradient of the case: one allocates its result, the other writes to `result`."""
    call = case.call(HOST)
    attributes = attributes_of(case)
    if attributes:
        arrays = [call.kernel, call.stride, call.padding]
        arrays += [call.pairs("dilation")] if call.role("dilation") else []
        attributes = [*map(list, arrays), *attributes[len(arrays) :]]
    name, arguments = named(case.operator.function, grad, x, indices, attributes)
    fresh = getattr(torch.ops.aten, name).default
    target = result.unsqueeze(-2) if len(case.operator.axes) == 1 else result
    if name == "_adaptive_avg_pool2d_backward":
        into = partial(torch.ops.aten._adaptive_avg_pool2d_backward.out, out=target)
    else:
        into = partial(getattr(torch.ops.aten, name.removeprefix("_")).grad_input, grad_input=target)
    return lambda: fresh(*arguments), lambda: into(*arguments)


def contestants(case: Case, grad: Array, indices: Array | None, out: Array) -> Runners:
    """PyTorch's contestants; none where PyTorch has no such gradient. Wrong: ours in `out` differs."""
    ours, result = out.copy(), torch_tensor(case, out)
    x = torch.empty_like(result)
    where = None if indices is None else torch.from_numpy(indices.astype(np.int64))
    fresh, into = aten_call(case, torch_tensor(case, grad), x, where, result)
    try:
        theirs = fresh().reshape(result.shape)
    except NotImplementedError:  # PyTorch has no avg_pool3d in halves on the CPU
        return {}
    if case.dtype.name == "FLOAT32" and not np.array_equal(bits_of(ours), bits_of(theirs.numpy())):
        raise Wrong(f"{case}: the result differs from PyTorch's")
    into()
    if torch.allclose(theirs, result, rtol=0, atol=0, equal_nan=True):
        return {"torch out=": into, "torch": fresh}
    return {"torch": fresh}  # PyTorch's out form of adaptive_avg3d takes channels-last memory for planes
