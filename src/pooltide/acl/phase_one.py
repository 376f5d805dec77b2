"""Takes the arguments of `aclnnXGetWorkspaceSize`: tensors, attributes and results.

Checks them by the rules of the operator's page, plans the computation, and returns the size of the workspace,
an executor and a status. It must not touch the data of tensors.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..kernels.plan import VARIABLES
from ..operators.call import Unusable, Value, is_int
from ..operators.describe import help_text
from ..operators.pages import Operator, Parameter
from .error_reports import ACLNN_STATUSES, Refused, entry_point, set_message
from .executors import aclOpExecutor
from .function_jobs import function_work
from .handles import Handle, handle_fault
from .phase_two import phase_two_function
from .pool_jobs import pool_work
from .scalars_and_lists import (
    aclBoolArray,
    aclFloatArray,
    aclIntArray,
    aclScalar,
    aclScalarList,
    aclTensorList,
)
from .state import STATE
from .tensor_descriptors import aclTensor

PhaseOne = Callable[..., tuple[int, aclOpExecutor | None, int]]

_RANGES = {
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int8": (-128, 127),
    "data_type": (-(2**31), 2**31 - 1),
    "uint64": (0, 2**64 - 1),
}


def plan_call(operator: Operator, arguments: tuple[Any, ...]) -> tuple[int, aclOpExecutor | None, int]:
    """Phase one: (the workspace's size, the executor, 0), or (0, None, the status of a broken rule)."""
    parameters = operator.parameters
    # Another thread may change a tensor meanwhile; the work and the executor must have the same one.
    arguments = tuple(map(_snapshot, arguments))
    values = tuple(map(value_of, parameters, arguments))
    tensors = _tensors(parameters, arguments)
    find = function_work if operator.yours else pool_work
    work = find(operator, STATE.product, values, tensors)
    if isinstance(work, tuple):
        status, message = work
        set_message(message, status)
        return 0, None, status
    workspace = max(work.scratch, _extra_workspace())
    return workspace, aclOpExecutor(work.call, tensors, work, workspace), 0


def _snapshot(argument: Any) -> Any:
    if isinstance(argument, aclTensor):
        return argument.snapshot(argument.address)
    if isinstance(argument, aclTensorList) and argument.alive:
        return aclTensorList(tuple(member.snapshot(member.address) for member in argument.values))
    return argument


def _tensors(parameters: Iterable[Parameter], arguments: Iterable[Any]) -> dict[str, aclTensor]:
    found = {}
    for parameter, argument in zip(parameters, arguments, strict=True):
        if isinstance(argument, aclTensor) and parameter.type == "tensor":
            found[parameter.name] = argument
        elif isinstance(argument, aclTensorList) and parameter.type == "tensor_list":
            for at, member in enumerate(argument.values):
                found[f"{parameter.name}[{at}]"] = member
    return found


def _extra_workspace() -> int:
    """The bytes of workspace that POOLTIDE_WORKSPACE makes every phase one ask for."""
    if not (value := VARIABLES.get(b"POOLTIDE_WORKSPACE")):
        return 0
    text = os.fsdecode(value)
    if text.isdecimal() and int(text) < 2**40:
        return int(text)
    must = "it must be a number of bytes below 2**40."
    raise Refused(ACLNN_STATUSES[1], f"the environment has POOLTIDE_WORKSPACE={text}; {must}")


def value_of(parameter: Parameter, argument: Any) -> Value:
    """The argument as rules read it: metadata of a tensor, values of an array, or `Unusable`."""
    if (kind := _HANDLES.get(parameter.type)) is not None:
        return _handle_value(argument, *kind)
    match parameter.type:
        case "bool":
            if isinstance(argument, bool) or (is_int(argument) and argument in (0, 1)):
                return bool(argument)
            return Unusable(f"is {argument!r:.60}", "a bool")
        case "float" | "double":
            if isinstance(argument, (float, np.floating)) or is_int(argument):
                return float(np.float32(argument)) if parameter.type == "float" else float(argument)
            return Unusable(f"is {argument!r:.60}", "a number")
        case "string":
            usable = argument is None or isinstance(argument, str)
            return argument if usable else Unusable(f"is {argument!r:.60}", "a text")
        case _:
            low, high = _RANGES[parameter.type]
            if is_int(argument) and low <= argument <= high:
                return int(argument)
            return Unusable(f"is {argument!r:.60}", f"an {parameter.type}, {low} to {high}")


def _handle_value(argument: Any, kind: type[Handle], read: Callable[[Any], Value]) -> Value:
    if argument is None:
        return None
    fault = handle_fault(argument, kind)
    if fault is None and kind is aclTensorList and not all(member.usable for member in argument.values):
        fault = "has a tensor that was destroyed", "a list of live tensors"
    return Unusable(*fault) if fault else read(argument)


_HANDLES: dict[str, tuple[type[Handle], Callable[[Any], Value]]] = {
    "tensor": (aclTensor, lambda tensor: tensor.meta),
    "tensor_list": (aclTensorList, lambda members: tuple(tensor.meta for tensor in members.values)),
    "scalar": (aclScalar, lambda scalar: scalar.value),
    "scalar_list": (aclScalarList, lambda members: tuple(scalar.value for scalar in members.values)),
    "int_array": (aclIntArray, lambda array: array.values),
    "float_array": (aclFloatArray, lambda array: array.values),
    "bool_array": (aclBoolArray, lambda array: array.values),
}


def phase_one_function(operator: Operator) -> PhaseOne:
    """The public function `aclnnXGetWorkspaceSize` of an operator."""
    names = [parameter.name for parameter in operator.parameters]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def phase_one(*args: Any, **kwargs: Any) -> tuple[int, aclOpExecutor | None, int]:
        arguments = args if not kwargs and len(args) == len(names) else signature.bind(*args, **kwargs).args
        return plan_call(operator, arguments)

    phase_one.__signature__ = signature  # type: ignore[attr-defined]
    phase_one.__doc__ = help_text(operator)
    phase_one.__name__ = phase_one.__qualname__ = f"{operator.name}GetWorkspaceSize"
    return entry_point(lambda status: (0, None, status), ACLNN_STATUSES)(phase_one)


def phase_functions(operators: Iterable[Operator]) -> dict[str, Callable[..., Any]]:
    """The two public functions of each operator, by name."""
    return {
        function.__name__: function
        for operator in operators
        for function in (phase_one_function(operator), phase_two_function(operator))
    }
