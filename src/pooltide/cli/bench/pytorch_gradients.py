"""PyTorch's own gradient of a case, and our function on tensors, for the benchmark of a gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ... import torch as functions
from ...acceptance.notation import Case
from ...acceptance.ulps import bits_of
from ...operators.dtypes import DType
from ...operators.pages import HOST
from ...torch.aten import aten_call
from ...torch.tensors import TYPES, memory_format
from .measurement import Implementations, WrongResult, attributes_of

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
    channels_last = case.channels_last and tensor.dim() == axes + 2
    return tensor.contiguous(memory_format=memory_format(channels_last, axes))


def pytorch_calls(
    case: Case, grad: Any, x: Any, indices: Any, result: Any
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two calls of PyTorch's gradient of the case: one allocates its result, the other writes to `result`."""
    call = case.call(HOST)
    attributes = attributes_of(case)
    if attributes:
        sizes = [call.kernel, call.stride, call.padding]
        sizes += [call.pairs("dilation")] if call.role("dilation") else []
        attributes = [*map(list, sizes), *attributes[len(sizes) :]]
    name, arguments = aten_call(case.operator.function, grad, x, indices, attributes)
    fresh = getattr(torch.ops.aten, name).default
    target = result.unsqueeze(-2) if len(case.operator.axes) == 1 else result
    if name == "_adaptive_avg_pool2d_backward":
        into = partial(torch.ops.aten._adaptive_avg_pool2d_backward.out, out=target)
    else:
        into = partial(getattr(torch.ops.aten, name.removeprefix("_")).grad_input, grad_input=target)
    return lambda: fresh(*arguments), lambda: into(*arguments)


def on_tensors(case: Case, grad: Array, indices: Array | None, out: Array) -> Implementations:
    """Ours on tensors, and PyTorch's where it has such a gradient. WrongResult: ours in `out` differs.

    Ours is compared with PyTorch's gradient of contiguous tensors: for channels-last, PyTorch rounds
    differently.
    """
    result = torch_tensor(case, out)
    index_tensor = None if indices is None else torch.from_numpy(indices.astype(np.int64))
    g, x = torch_tensor(case, grad), torch.empty_like(result)
    if case.dtype.name == "FLOAT32":
        _compare(case, out, g, x, index_tensor)
    ours = _ours(case, result, g, x, index_tensor)
    fresh, into = pytorch_calls(case, g, x, index_tensor, result)
    try:
        theirs = fresh().reshape(result.shape)
    except NotImplementedError:  # PyTorch has no avg_pool3d in fp16 and bf16 on the CPU
        return ours
    into()
    # PyTorch's out form of adaptive_avg3d takes channels-last memory for planes.
    return ours | {"torch": fresh} | ({"torch out=": into} if _equal(theirs, result) else {})


def _compare(case: Case, ours: Array, g: Any, x: Any, indices: Any) -> None:
    def plain(t: Any) -> Any:  # .contiguous() keeps channels-last strides where they are ambiguous
        return None if t is None else t.clone(memory_format=torch.contiguous_format)

    theirs = pytorch_calls(case, plain(g), plain(x), plain(indices), x)[0]().reshape(x.shape)
    if not np.array_equal(bits_of(ours), bits_of(theirs.numpy())):
        raise WrongResult(f"{case}: the result differs from PyTorch's")


def _ours(case: Case, result: torch.Tensor, g: Any, x: Any, indices: Any) -> Implementations:
    function, inputs = (
        getattr(functions, case.operator.function),
        (g, x) if indices is None else (g, x, indices),
    )
    attributes = attributes_of(case)
    if not _equal(function(*inputs, *attributes), result):
        raise WrongResult(f"{case}: the results on arrays and on tensors differ")
    return {
        "ours out=": lambda: function(*inputs, *attributes, out=result),
        "ours": lambda: function(*inputs, *attributes),
    }


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
