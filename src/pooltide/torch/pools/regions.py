"""Pools over regions of interest on tensors: checks, plans and runs them, on the CPU or a GPU.

`pool` and `gradient` compute, and nothing may follow them: torch.ops.pooltide (dispatch/region_operators.py)
is for autograd, compilers and transforms. `one_tensor` makes one tensor of the boxes of several images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...kernels import Arrays
from ...kernels.calls import CALLS, call_key, keep
from ...kernels.plan import Executable, plan
from ...kernels.regions import RegionFault
from ...operators.binding import bind
from ...operators.catalog import regions
from ...operators.plain import plain, plain_shape, shown
from ...problem.regions import RegionProblem, lower_regions
from ..gpu import gpu_number
from ..openmp import num_threads
from ..tensors import (
    TYPES,
    address,
    aligned,
    allocate,
    arrays_on,
    as_numpy,
    dense_strides,
    is_channels_last,
    is_tensor,
    memory_format,
    metadata,
    shortage,
)

Tensor = torch.Tensor
Boxes = Tensor | Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class _Call:
    problem: RegionProblem
    executable: Executable
    channels_last: bool


def pool(
    name: str, x: Tensor, boxes: Tensor, attributes: tuple[Any, ...], indexed: bool
) -> tuple[Tensor, Tensor | None]:
    """Returns values and indices of a pool; None for the indices if there are none."""
    call = _prepared(name, None, x, boxes, None, attributes, indexed, is_channels_last(x, 2))
    values = _new(call, "out", x.dtype, x.device)
    index = call.problem.index_dtype
    places = None if index is None else _new(call, "indices", getattr(torch, index.name.lower()), x.device)
    _run(name, call, None, x, boxes, places, values)
    return values, places


def gradient(
    name: str,
    grad_output: Tensor,
    shape: tuple[int, ...],
    boxes: Tensor,
    indices: Tensor | None,
    attributes: tuple[Any, ...],
    channels_last: bool,
) -> Tensor:
    """Returns the gradient with respect to an input of this shape; `channels_last` is its memory format."""
    call = _prepared(name, grad_output, shape, boxes, indices, attributes, True, channels_last)
    result = _new(call, "out", grad_output.dtype, grad_output.device)
    _run(name, call, grad_output, None, boxes, indices, result)
    return result


def checked(
    name: str, grad: Any, input: Any, boxes: Any, indices: Any, attributes: tuple[Any, ...], out: Any = None
) -> RegionProblem:
    """Returns the problem of a call; raises for the first bad argument."""
    source = input if grad is None else grad
    device = source.device if is_tensor(source) else torch.device("cpu")
    arrays = arrays_on(device, "input" if grad is None else "grad_output")
    call = bind(arrays, regions()[name], grad, input, indices, attributes, out, boxes)
    return lower_regions(call)


def one_tensor(name: str, boxes: Any, like: Any, images: int | None = None) -> Any:
    """Returns boxes as one tensor, (K, 5); a list has the boxes of each image, (L, 4), in a tensor."""
    if not isinstance(boxes, (tuple, list)):
        return boxes
    for at, part in enumerate(boxes):
        if not is_tensor(part):
            raise TypeError(f"{name}: boxes[{at}] is {shown(part)}; it must be a tensor of shape (L, 4).")
        if part.dim() != 2 or part.shape[1] != 4:
            shape = tuple(part.shape)
            raise ValueError(f"{name}: boxes[{at}] has shape {shape}; it must be a tensor of shape (L, 4).")
        if part.dtype != boxes[0].dtype or part.dtype not in TYPES or not part.is_floating_point():
            got, first = (str(dtype).removeprefix("torch.") for dtype in (part.dtype, boxes[0].dtype))
            must = f"{first}, as boxes[0] has" if at else "float32, float64, float16 or bfloat16"
            raise TypeError(f"{name}: boxes[{at}] has dtype {got}; it must be {must}.")
    if images is not None and len(boxes) > images:
        must = f"at most {images}, one for each image"
        raise ValueError(f"{name}: boxes has {len(boxes)} tensors; it must have {must}.")
    if not boxes:
        return like.new_empty(0, 5)
    # Half types have too few digits for the number of an image; float32 has them up to 2^24.
    rows = torch.cat(list(boxes))
    wide = rows.double() if rows.dtype == torch.float64 else rows.float()
    number = torch.cat([wide.new_full((len(part), 1), at) for at, part in enumerate(boxes)])
    return torch.cat([number, wide], 1)


def _prepared(
    name: str,
    grad: Tensor | None,
    input: Any,
    boxes: Tensor,
    indices: Tensor | None,
    attributes: tuple[Any, ...],
    indexed: bool,
    channels_last: bool,
) -> _Call:
    attributes = tuple(map(plain, attributes))
    source = input if grad is None else grad
    for argument, tensor in (
        ("grad_output" if grad is not None else "input", source),
        ("boxes", boxes),
        ("indices", indices),
    ):
        if tensor is not None and (text := shortage(tensor)):
            raise ValueError(f"{name}: {argument} {text}")
    facts = metadata(source, boxes, indices)
    shape = () if grad is None else plain_shape(input)
    key = call_key(name, facts, (shape, *attributes), indexed, channels_last)
    if (known := CALLS.get(key)) is not None:
        return known  # type: ignore[no-any-return]
    arrays = arrays_on(source.device, "input" if grad is None else "grad_output")
    call = bind(arrays, regions()[name], grad, input, indices, attributes, None, boxes)
    problem = lower_regions(call, indexed)
    layouts = ("channels_last" if channels_last else "planes",) * len(problem.roles)
    return keep(key, _Call(problem, plan(problem, layouts, gpu_number(source.device)), channels_last))


def _new(call: _Call, role: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    shape = call.problem.shape(role)
    return allocate(shape, dense_strides(shape, call.channels_last), dtype, device)


def _run(
    name: str,
    call: _Call,
    grad: Tensor | None,
    x: Tensor | None,
    boxes: Tensor,
    indices: Tensor | None,
    out: Tensor,
) -> None:
    problem, executable = call.problem, call.executable
    if not out.numel() and problem.gradient:
        return
    form = memory_format(call.channels_last, 2)
    grad, x, indices = (
        None if t is None else aligned(t.detach().contiguous(memory_format=form)) for t in (grad, x, indices)
    )
    rows = aligned(
        boxes.detach().to(torch.float64 if problem.dtype.name == "FLOAT64" else torch.float32).contiguous()
    )
    if executable.prepared is not None:
        at = [None if t is None else address(t) for t in (grad, x, rows, indices)]
        fault = executable.prepared.run(*at, out.data_ptr(), num_threads())
        assert fault is not NotImplemented, "the tensors are aligned and disjoint"
    elif executable.device is not None:  # nothing is read
        out.zero_()
        return
    else:
        arrays = [None if t is None else as_numpy(t) for t in (grad, x, indices, out, rows)]
        fault = executable.run(Arrays(*arrays))
    if fault is not None:
        raise IndexError(f"{name}: {RegionFault(*fault).message(problem, rows.numpy())}")
