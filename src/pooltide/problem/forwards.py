"""The arguments of a forward pool, and the checked problem that they describe.

`StridedArguments` and `AdaptiveArguments` hold all arguments of a pool except its input.
`forward_problem` takes them with the input, checks them by the operator's rules, and returns a `Problem`.
It raises for the first bad argument.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..operators.binding import ArrayReader, bind
from ..operators.catalog import operators
from ..operators.plain import plain, shown
from .problem import Problem, lower


class StridedArguments(NamedTuple):
    """The arguments of an average or max pool. Averages ignore `dilation`; maxima ignore the last two."""

    kernel_size: Any
    stride: Any
    padding: Any
    dilation: Any
    ceil_mode: Any
    count_include_pad: Any = True
    divisor_override: Any = None


class AdaptiveArguments(NamedTuple):
    output_size: Any


PoolArguments = StridedArguments | AdaptiveArguments


def plain_arguments(arguments: PoolArguments) -> PoolArguments:
    """Returns the arguments as plain values (operators/plain.py); a value with no plain form is unchanged."""
    return type(arguments)(*map(plain, arguments))


def forward_problem(
    name: str,
    reader: ArrayReader,
    input: Any,
    arguments: PoolArguments,
    return_indices: Any = False,
    out: Any = None,
    indices: Any = None,
) -> Problem:
    """Returns the problem of a call of the function `name`; raises for the first bad argument.

    `out` and `indices` are the arrays that receive the results, or None where the function allocates them.
    """
    operator, indexed = operators()[name], plain(return_indices)
    attributes = tuple(getattr(arguments, p.argument) for p in operator.parameters if p.type != "tensor")
    call = bind(reader, operator, None, input, indices, attributes, out)
    if type(indexed) is not bool:
        raise TypeError(f"{name}: return_indices is {shown(indexed)}; it must be True or False.")
    return lower(call, indexed)
