"""Golden results for other tools: functions that msOpST and ATK call to learn what a result must be.

    golden_function("avg_pool2d_backward")   the function of that name, computed in float64 and rounded once
    expectation("avg_pool2d_backward")       what msOpST calls: inputs are dicts with "value", and so on
    execute("avg_pool2d", arguments)         what an ATK executor calls, with PyTorch's tensors

examples/msopst_expectation.py and examples/atk_executor.py show them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import functions
from ..operators.catalog import operators
from ..operators.dtypes import dtype_of
from ..operators.pages import Operator
from ..problem.rounding import round_once
from .foreign import operator_called, role_called

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]


def golden_function(name: str) -> Callable[..., Any]:
    """The NumPy function of this library with that name, which computes in float64 and rounds once.

    The dtype of the result is that of the first array. KeyError: there is no such function.
    """
    operator = operators()[name]
    return partial(_golden, getattr(functions, operator.function))


def _golden(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    arrays = [value for value in (*arguments, *named.values()) if _is_float(value)]
    if not arrays:
        raise TypeError("there is no array of floats among the arguments; there must be one")
    wide = [value.astype(np.float64) if _is_float(value) else value for value in arguments]
    others = {key: value.astype(np.float64) if _is_float(value) else value for key, value in named.items()}
    results = function(*wide, **others)
    dtype = arrays[0].dtype
    if isinstance(results, tuple):  # values and indices
        return round_once(results[0], dtype), results[1]
    return round_once(results, dtype)


def _is_float(value: Any) -> bool:
    if not isinstance(value, np.ndarray) or (dtype := dtype_of(value.dtype)) is None:
        return False
    return "FLOAT" in dtype.name


def expectation(name: str) -> Callable[..., list[Array]]:
    """A function for calc_expect_func_file of an msOpST case; `name` is an operator's, as op of the case.

    msOpST calls it with the case's inputs, outputs and attributes by their names: inputs and outputs as dicts
    with value, dtype, shape and format, attributes as they are. The result is a list of arrays.
    """
    operator = operator_called(name)
    if operator is None:
        raise KeyError(f"{name!r} is no operator that pooltide ops lists")
    return partial(_expected, operator)


def _expected(operator: Operator, **named: Any) -> list[Array]:
    results = _results(operator, {key: _msopst_value(value) for key, value in named.items()})
    return list(results) if isinstance(results, tuple) else [results]


def _msopst_value(value: Any) -> Any:
    """The array of an input, the shape of an input or output without one, or an attribute itself."""
    if not isinstance(value, dict):
        return value
    array = value.get("value")
    return tuple(value["shape"]) if array is None else np.asarray(array)


def _results(operator: Operator, named: Mapping[str, Any]) -> Any:
    """The golden results for arguments with the names of CANN's documents or of the function."""
    arguments: dict[str, Any] = {}
    for key, value in named.items():
        role = role_called(operator, key)
        parameter = operator.by_role(role) if role else None
        if role is None:
            raise TypeError(f"{operator.function}: there is no parameter {key!r}")
        if parameter is None or role in ("out", "cube_math_type"):  # of CANN's operator alone
            continue
        absent = value is None or (role in ("stride", "divisor_override") and not value)
        arguments[parameter.argument] = None if absent else tuple(value) if isinstance(value, list) else value
    if operator.gradient and isinstance(arguments.get("input"), np.ndarray):
        arguments["input"] = arguments["input"].shape  # only its shape counts
    if not operator.gradient and operator.by_role("indices"):
        arguments = {key: value for key, value in arguments.items() if key != "out[1]"} | {
            "return_indices": True
        }
    return golden_function(operator.function)(**arguments)


def execute(name: str, arguments: Mapping[str, Any]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The golden result for PyTorch's tensors, as an ATK executor returns it.

    `arguments` are input_data.kwargs of the executor, with the names of CANN's documents or of the function.
    """
    import torch

    operator = operator_called(name)
    if operator is None:
        raise KeyError(f"{name!r} is no operator that pooltide ops lists")

    def to_numpy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        plain = value.detach().cpu().contiguous()
        if plain.dtype == torch.bfloat16:
            import ml_dtypes

            return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return plain.numpy()

    def to_torch(array: Array) -> torch.Tensor:
        if array.dtype.kind == "V" or "bfloat16" in str(array.dtype):
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    results = _results(operator, {key: to_numpy(value) for key, value in arguments.items()})
    return tuple(map(to_torch, results)) if isinstance(results, tuple) else to_torch(results)
