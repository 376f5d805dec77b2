"""Forwards on tensors, and what they keep for the gradient.

On plain tensors of the CPU our kernels compute, elsewhere PyTorch's: on a GPU, where something traces or
transforms the call, under autocast, for dtypes that we have not, and for the mean of whole planes, whose
bits are PyTorch's own. Of a maximum they keep offsets of one byte in its window where those suffice, else
its index in the smallest integer type.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..geometry import is_long
from ..kernels.cpu import STORES
from ..kernels.plan import ENVIRONMENT, make_plan, roles, shortcut
from ..kernels.threads import get_num_threads
from ..operators.memory import reserve
from ..operators.plain import kinds, shown
from ..problem.forwards import Adaptive, Strided, forward_problem
from ..problem.offsets import Offsets, offsets_of
from ..problem.problem import Problem, gradient_of, with_offsets
from . import devices
from .errors import DtypeError, ShapeError, as_pytorch
from .gradients import is_plain
from .recipes import Recipe, compute, layout_in_memory, recipe_of
from .tensors import (
    DEVICES,
    TYPES,
    aligned,
    allocate,
    arrays_on,
    dense_strides,
    lies_channels_last,
    memory_format,
    unreadable,
)

Tensor = torch.Tensor
Asked = Strided | Adaptive
_FLOATS = frozenset(dtype for dtype, known in TYPES.items() if known.name in STORES)
_MOST = 4096
_FLAGS = ("ceil_mode", "count_include_pad")
# As PyTorch has them at import: whoever puts our pools in their place must not send us to ourselves.
_PYTORCHS = {
    name: getattr(F, name)
    for name in (
        f"{kind}_pool{axes}d" for kind in ("avg", "adaptive_avg", "max", "adaptive_max") for axes in (1, 2, 3)
    )
}
# Of an input in channels_last_3d these are contiguous in PyTorch, and their callers may count on it.
_CONTIGUOUS = frozenset({"avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d"})


@dataclass(frozen=True, slots=True)
class Ready:
    """A pool of one kind of tensor, checked and prepared. Without a kernel PyTorch computes the maxima."""

    problem: Problem
    axes: int
    shape: tuple[int, ...]  # of the result
    strides: tuple[int, ...]
    copied: torch.memory_format | None  # into which the input must be brought
    kernel: Callable[..., Any] | None
    contiguous: bool  # whether results are made so after the kernel; offsets never are


_ready: dict[Any, Ready | None] = {}


def ready_for(name: str, x: Tensor, asked: Asked, places: str = "none") -> Ready | None:
    """How to compute a pool of a plain tensor, or None where that is PyTorch's affair alone.

    `places` says what is wanted of maxima besides: none, indices or offsets. Raises what is wrong.
    """
    if torch.compiler.is_compiling() or not isinstance(x, Tensor) or x.dtype not in _FLOATS or not _plain(x):
        return None
    casting = torch.is_autocast_enabled(x.device.type)
    types = kinds(asked)
    key: Any = (
        name, asked, types, places, x.shape, x.stride(), x.dtype, x.device, casting,
        os.environ.get(ENVIRONMENT),
    )  # fmt: skip
    if types is not None and key in _ready:
        return _ready[key]
    try:
        found = _prepare(name, x, asked, places, casting)
    except (TypeError, ValueError) as error:
        raise as_pytorch(error) from None
    # What is not plain may fail to hash; the kernel of long axes has tables as long.
    if types is not None and (found is None or not is_long(found.problem.axes)):
        if len(_ready) >= _MOST:
            _ready.clear()
        _ready[key] = found
    return found


def _plain(x: Tensor) -> bool:
    if x.layout != torch.strided or x.device.type not in DEVICES:
        return False
    with torch.no_grad():  # what requires a gradient is plain too: autograd is our caller's
        return is_plain(x, None)


def _prepare(name: str, x: Tensor, asked: Asked, places: str, casting: bool) -> Ready | None:
    axes = int(name[-2])
    problem = forward_problem(name, arrays_on(x.device), x, asked, places != "none")
    if places != "none" and may_miss_the_plane(asked, x.shape[-axes:]):
        return None
    shape = (*x.shape[:-axes], *problem.output_plane[3 - axes :])
    if x.is_cpu:
        reserve(name, prod(shape) * x.element_size())
    if places == "offsets":
        small = with_offsets(problem)
        if small is None:
            return None
        problem = small
    last = lies_channels_last(x, axes)
    kernel = None
    if x.is_cpu and not casting and problem.quotient != "mean":
        layout = "channels_last" if last else "planes"
        kernel = shortcut(make_plan(problem, (layout,) * len(roles(problem))))
    if kernel is None and places != "offsets":
        return None
    form = memory_format(last, axes)
    copied = None if x.is_contiguous(memory_format=form) else form
    strides = dense_strides(shape, last)
    return Ready(problem, axes, shape, strides, copied, kernel, last and name in _CONTIGUOUS)


def may_miss_the_plane(asked: Asked, lengths: Sequence[int]) -> bool:
    """Whether dilation may step from the padding over an axis, so that a window has no cell.

    PyTorch's index of such a window lies outside the plane, or is another window's cell.
    """
    steps = asked.dilation if isinstance(asked, Strided) else 1
    if isinstance(steps, int):
        return steps > 1 and any(steps > length for length in lengths)
    return any(step > length for step, length in zip(steps, lengths, strict=False))


def unit_axis(name: str, x: Tensor) -> int | None:
    """Where an axis of length 1 makes of a plain tensor one that PyTorch takes for channels_last, or None.

    PyTorch pools (N, C, W) as (N, C, 1, W), and max_pool3d an unbatched tensor as a batch of one; results
    then have the input's layout.
    """
    if torch.compiler.is_compiling() or x.layout != torch.strided:
        return None
    if name.endswith("1d"):
        near = x.dim() == 3 and x.stride(1) <= x.stride(2)
        return -2 if near and _plain(x) and lies_channels_last(x.unsqueeze(-2), 2) else None
    near = name == "max_pool3d" and x.dim() == 4 and x.stride(0) <= x.stride(3) and not x.is_contiguous()
    return 0 if near and _plain(x) and x.movedim(0, -1).is_contiguous() else None


def with_unit_axis(name: str, x: Tensor, asked: Asked, at: int) -> tuple[str, Tensor, Asked]:
    """The same pool of the tensor with its `unit_axis`; its results have that axis too."""
    if at == 0:
        return name, x.movedim(0, -1).unsqueeze(0).movedim(-1, 1), asked  # strides of channels_last_3d
    width = [value[-1] if isinstance(value, (tuple, list)) and value else value for value in asked]
    if isinstance(asked, Adaptive):
        wide: Asked = Adaptive((1, width[0]))
    else:
        kernel, stride, padding, dilation, *rest = width
        wide = Strided((1, kernel), (1, stride) if stride else None, (0, padding), (1, dilation), *rest)
    return name.replace("1d", "2d"), x.unsqueeze(-2), wide


def values_of(ready: Ready, x: Tensor) -> Tensor:
    return _run(ready, x, None)[0]


def maxima_of(ready: Ready, x: Tensor) -> tuple[Tensor, Tensor]:
    """The values, and their offsets or int64 indices, whichever are ready."""
    values, places = _run(ready, x, torch.uint8 if ready.problem.offsets else torch.int64)
    assert places is not None
    return values, places


def _run(ready: Ready, x: Tensor, places: torch.dtype | None) -> tuple[Tensor, Tensor | None]:
    assert ready.kernel is not None
    if ready.copied is not None:
        x = x.contiguous(memory_format=ready.copied)
    x = aligned(x)
    values = _empty(ready, x, x.dtype)
    found = None if places is None else _empty(ready, x, places)
    threads = min(get_num_threads(), torch.get_num_threads())
    places_at = None if found is None else found.data_ptr()
    ready.kernel(None, x.data_ptr(), places_at, values.data_ptr(), threads)
    if ready.contiguous:
        values = values.contiguous()
        found = found.contiguous() if places == torch.int64 and found is not None else found
    return values, found


def _empty(ready: Ready, x: Tensor, dtype: torch.dtype) -> Tensor:
    return allocate(ready.shape, ready.strides, prod(ready.shape) * dtype.itemsize, dtype, x.device)


def pytorchs(name: str, x: Tensor, asked: Asked, places: bool = False) -> Any:
    """PyTorch's pool; of a maximum with `places` also int64 indices."""
    refuse_odd(name, asked)
    given = asked if isinstance(asked, Adaptive) else attributes(name, asked)
    more = {"return_indices": True} if places else {}
    return _PYTORCHS[name](x, *given, **more)


def refuse_odd(name: str, asked: Asked) -> None:
    """Raise for an argument that is neither plain (plain.py) nor a size under tracing."""
    if torch.compiler.is_compiling() or kinds(asked) is not None:
        return
    for argument, value in zip(asked._fields, asked, strict=True):
        values = value if type(value) is tuple else (value,)
        if kinds(tuple(v for v in values if type(v) is not torch.SymInt)) is None:
            must = "True or False" if argument in _FLAGS else "an int or a tuple of ints"
            text = f"{argument} is {shown(value)}; it must be {must}"
            raise DtypeError(f"{name}: {text}.")


def is_foreign(x: Any) -> bool:
    """Whether a tensor is of a kind that only PyTorch may know: sparse, nested, mkldnn or quantized."""
    return isinstance(x, Tensor) and (x.is_quantized or unreadable(x) is not None)


def foreign(name: str, x: Tensor, asked: Asked, places: bool = False) -> Any:
    """PyTorch's pool of such a tensor, with PyTorch's gradient; raises DtypeError where it has none."""
    try:
        return pytorchs(name, x, asked, places)
    except DtypeError:
        raise
    except (RuntimeError, IndexError) as error:
        kind = unreadable(x) or f"has dtype {x.dtype}".replace("torch.", "")
        raise DtypeError(f"{name}: input {kind}; it must be a strided tensor of floats.") from error


def left_to_pytorch(name: str, x: Tensor, asked: Asked, places: bool) -> Any:
    """PyTorch's pool with PyTorch's gradient, of other than floats and of no elements.

    Which of the latter it takes depends on the pool in many ways; where it raises, we say why.
    """
    try:
        return pytorchs(name, x, asked, places)
    except RuntimeError as error:
        if x.numel():
            raise
        if (
            isinstance(error, NotImplementedError)
            and x.dtype in (torch.float16, torch.bfloat16)
            and not places
        ):
            # PyTorch's avg_pool3d has no kernel of this dtype, even for a batch of no samples.
            return left_to_pytorch(name, x.float(), asked, False).to(x.dtype)
        ready_for(name, x, asked)  # which has a better sentence for all but C = 0
        shape = tuple(x.shape)
        must = "every dimension but N must be greater than 0"
        raise ShapeError(f"{name}: input has shape {shape}; {must}.") from error


def cast(name: str, x: Tensor, asked: Asked) -> Tensor:
    """The tensor as autocast hands it to PyTorch's pool; one that also gives indices may get another."""
    if x.device.type not in DEVICES or not torch.is_autocast_enabled(x.device.type):
        return x
    batched = x.dim() == int(name[-2]) + 2
    none = x.new_empty((0, *x.shape[1:]) if batched else (0, *x.shape))
    return x.to(pytorchs(name, none, asked).dtype)


def attributes(name: str, asked: Asked) -> tuple[Any, ...]:
    """What PyTorch's pool takes besides its input, and our gradient of it; an adaptive one has none."""
    if isinstance(asked, Adaptive):
        return ()
    kernel, stride, padding, dilation, ceil, counted, divisor = asked
    if "max" in name:
        return kernel, stride, padding, dilation, ceil
    return (kernel, stride, padding, ceil, counted) + (() if "1d" in name else (divisor,))


def offsets_from(ready: Ready, indices: Tensor) -> Tensor:
    """Indices, flat in their planes, as offsets in their windows."""
    if indices.is_cuda:
        problem = gradient_of(ready.problem, ready.problem.dtype)
        found = devices.offsets_from(problem, layout_in_memory(indices, ready.axes), indices)
        if found is not None:
            return found
    written, corner, _ = _tables(ready.problem, ready.axes, indices.device)
    _, height, width = ready.problem.input_plane
    _, h, w = written.most
    i, j, k = ready.problem.dilation
    far = indices - corner
    d_steps = far // (height * width) // i
    h_steps = far % (height * width) // width // j
    return ((d_steps * h + h_steps) * w + far % width // k).to(torch.uint8)


def indices_from(ready: Ready, offsets: Tensor) -> Tensor:
    """Offsets as int64 indices."""
    _, corner, jump = _tables(ready.problem, ready.axes, offsets.device)
    return jump[offsets.long()] + corner


@lru_cache(maxsize=256)
def _tables(problem: Problem, axes: int, device: torch.device) -> tuple[Offsets, Tensor, Tensor]:
    """How offsets are counted, the first cell of each window, and how far from it offsets lie."""
    written = offsets_of(problem.axes)
    assert written is not None
    corner = written.indices(np.zeros(problem.output_plane, np.uint8), problem.input_plane)
    plane = torch.tensor(corner, device=device).reshape(problem.output_plane[3 - axes :])
    return written, plane, torch.tensor(written.jump, device=device)


def gradient_from(
    ready: Ready, function: str, grad_output: Tensor, offsets: Tensor, shape: tuple[int, ...], last: bool
) -> Tensor:
    """The gradient of maxima, channels_last or not; raises NoBackend where no kernel reads offsets."""
    layouts = layout_in_memory(grad_output, ready.axes), layout_in_memory(offsets, ready.axes)
    backend = os.environ.get(ENVIRONMENT)
    recipe_in = _recipe_of if is_long(ready.problem.axes) else _recipe
    recipe = recipe_in(function, ready, layouts, shape, last, grad_output.dtype, grad_output.device, backend)
    return compute(recipe, grad_output, offsets, None, within=True)


def _recipe_of(
    function: str,
    ready: Ready,
    layouts: tuple[str, str],
    shape: tuple[int, ...],
    last: bool,
    dtype: torch.dtype,
    device: torch.device,
    _backend: str | None,  # by which the environment makes other recipes
) -> Recipe:
    problem = gradient_of(ready.problem, TYPES[dtype])
    lies = "channels_last" if last else "planes"
    return recipe_of(function, ready.axes, problem, (*layouts, lies), shape, last, dtype, device)


_recipe = lru_cache(maxsize=1024)(_recipe_of)
