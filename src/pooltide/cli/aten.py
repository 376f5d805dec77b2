"""The contestants on tensors: PyTorch's own gradient of a case, and our function for tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import torch as functions
from ..acceptance.measures import bits_of
from ..acceptance.notation import Case
from ..operators.dtypes import DType
from ..operators.pages import HOST
from ..torch.aten_fallback import aten_call as named
from ..torch.tensors import TYPES, memory_format
from .entries import Runners, Wrong, attributes_of

Array = NDArray[Any]


def torch_tensor(case: Case, array: Array) -> Any:
    if case.dtype.name == "BFLOAT16" and array.itemsize == 2:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_dtype(dtype: DType) -> torch.dtype:
    return next(theirs for theirs, ours in TYPES.items() if ours == dtype)


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
    """Ours on tensors, and PyTorch's where it has such a gradient. Wrong: ours in `out` differs.

    Ours is compared with PyTorch's gradient of contiguous tensors: for channels-last, PyTorch rounds
    differently.
    """
    result = torch_tensor(case, out)
    where = None if indices is None else torch.from_numpy(indices.astype(np.int64))
    g, x = torch_tensor(case, grad), torch.empty_like(result)
    if case.dtype.name == "FLOAT32":
        _compare(case, out, g, x, where)
    found = _on_tensors(case, result, g, x, where)
    fresh, into = aten_call(case, g, x, where, result)
    try:
        theirs = fresh().reshape(result.shape)
    except NotImplementedError:  # PyTorch has no avg_pool3d in halves on the CPU
        return found
    into()
    # PyTorch's out form of adaptive_avg3d takes channels-last memory for planes.
    return found | {"torch": fresh} | ({"torch out=": into} if _equal(theirs, result) else {})


def _compare(case: Case, ours: Array, g: Any, x: Any, where: Any) -> None:
    def plain(t: Any) -> Any:  # .contiguous() keeps channels-last strides where they are ambiguous
        return None if t is None else t.clone(memory_format=torch.contiguous_format)

    must = aten_call(case, plain(g), plain(x), plain(where), x)[0]().reshape(x.shape)
    if not np.array_equal(bits_of(ours), bits_of(must.numpy())):
        raise Wrong(f"{case}: the result differs from PyTorch's")


def _on_tensors(case: Case, result: torch.Tensor, g: Any, x: Any, where: Any) -> Runners:
    function, given = getattr(functions, case.operator.function), (g, x) if where is None else (g, x, where)
    more = attributes_of(case)
    if not _equal(function(*given, *more), result):
        raise Wrong(f"{case}: the results on arrays and on tensors differ")
    return {
        "ours out=": lambda: function(*given, *more, out=result),
        "ours": lambda: function(*given, *more),
    }


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
