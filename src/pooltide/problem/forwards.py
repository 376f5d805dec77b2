"""A forward's arguments as the functions take them, and the checked problem that they mean.

`Strided` and `Adaptive` hold the arguments of a pool besides its input. `forward_problem` binds them to the
operator's page, checks them by its rules, and lowers the call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..operators.binding import ArrayReader, bind
from ..operators.catalog import operators
from ..operators.plain import plain, shown
from .problem import Problem, lower


class Strided(NamedTuple):
    """The arguments of an average or max pool; an average has no dilation, a maximum no divisor."""

    kernel_size: Any
    stride: Any
    padding: Any
    dilation: Any
    ceil_mode: Any
    count_include_pad: Any = True
    divisor_override: Any = None


class Adaptive(NamedTuple):
    output_size: Any


Asked = Strided | Adaptive


def settled(asked: Asked) -> Asked:
    """The same arguments as plain values (plain.py), where they have a meaning as such."""
    return type(asked)(*map(plain, asked))


def forward_problem(
    name: str,
    reader: ArrayReader,
    input: Any,
    asked: Asked,
    return_indices: Any = False,
    out: Any = None,
    indices: Any = None,
) -> Problem:
    """The problem of a call of the function `name`; raises its first fault.

    `out` and `indices` are the arrays that the results are written to, or None where they are allocated.
    """
    operator, indexed = operators()[name], plain(return_indices)
    attributes = tuple(getattr(asked, p.argument) for p in operator.parameters if p.type != "tensor")
    call = bind(reader, operator, None, input, indices, attributes, out)
    if type(indexed) is not bool:
        raise TypeError(f"{name}: return_indices is {shown(indexed)}; it must be True or False.")
    return lower(call, indexed)
