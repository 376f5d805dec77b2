"""Takes the arguments of `aclnnXGetWorkspaceSize`: tensors, attributes and results.

Checks them by the rules of the operator's page, plans the computation, and returns the size of the workspace,
an executor and a status. It must not touch the data of tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..arrays.volumes import tensor_layout
from ..kernels.calls import CALLS
from ..kernels.cpu import tables_of
from ..kernels.plan import NoBackend, Plan, backend_setting, make_plan, roles, shortcut
from ..operators.call import CHANNELS_LAST, Call, Unusable, Value, is_int
from ..operators.describe import help_text
from ..operators.pages import Operator, Parameter
from ..operators.rules import check
from ..problem.problem import lower
from .error_reports import ACLNN_STATUSES, Refused, entry_point, set_message
from .executors import aclOpExecutor
from .handles import Handle, handle_fault
from .scalars_and_lists import aclIntArray
from .state import STATE
from .tensor_descriptors import aclTensor

PhaseOne = Callable[..., tuple[int, aclOpExecutor | None, int]]

_RANGES = {"int64": (-(2**63), 2**63 - 1), "int8": (-128, 127)}


def plan_call(operator: Operator, arguments: tuple[Any, ...]) -> tuple[int, aclOpExecutor | None, int]:
    """Phase one: (the workspace's size, the executor, 0), or (0, None, the status of a broken rule).

    The checks and the plan depend on metadata only, so an equal call finds them in the cache of calls.
    """
    parameters = operator.parameters
    # Another thread may change a tensor meanwhile; the plan and the executor must have the same one.
    arguments = tuple(a.snapshot(a.address) if isinstance(a, aclTensor) else a for a in arguments)
    values = tuple(map(value_of, parameters, arguments))
    tensors = {p.role: t for p, t in zip(parameters, arguments, strict=True) if p.type == "tensor"}
    aligned = tuple(isinstance(t, aclTensor) and t.aligned for t in tensors.values())
    key = operator, STATE.product, values, aligned, backend_setting()
    if (planned := CALLS.get(key)) is None:
        names = (parameter.name for parameter in parameters)
        call = Call(operator, STATE.product, dict(zip(names, values, strict=True)))
        if fault := check(call):
            set_message(fault.message(operator.name))
            return 0, None, fault.status
        plan = _plan(call, tensors)
        planned = call, plan, plan.scratch, shortcut(plan)
        CALLS.add(key, planned, tables_of(planned[-1]))
    call, plan, scratch, kernel = planned
    return scratch, aclOpExecutor(call, tensors, plan, kernel), 0


def _plan(call: Call, tensors: Mapping[str, aclTensor]) -> Plan:
    problem = lower(call)
    try:
        return make_plan(problem, tuple(_layout(tensors[role], call) for role in roles(problem)))
    except NoBackend as error:
        text = (
            f"{error}; the environment variable POOLTIDE_BACKEND must name a backend that can run the call."
        )
        raise Refused(ACLNN_STATUSES[1], text) from None


def _layout(tensor: aclTensor, call: Call) -> str:
    """The layout of the tensor as a volume with axes N C D H W; absent axes have size 1."""
    if call.operator.masked and tensor.dtype.name == "INT8":
        return "planes"  # phase two makes the indices of a mask
    if not tensor.aligned:
        return "strided"
    axes = call.axes(len(tensor.shape))
    return tensor_layout(tensor.shape, tensor.strides, axes, tensor.format in CHANNELS_LAST)


def value_of(parameter: Parameter, argument: Any) -> Value:
    """The argument as rules read it: metadata of a tensor, values of an array, or `Unusable`."""
    match parameter.type:
        case "tensor":
            return _handle_value(argument, aclTensor, "meta")
        case "int_array":
            return _handle_value(argument, aclIntArray, "values")
        case "bool":
            if isinstance(argument, bool) or (is_int(argument) and argument in (0, 1)):
                return bool(argument)
            return Unusable(f"is {argument!r:.60}", "a bool")
        case _:
            low, high = _RANGES[parameter.type]
            if is_int(argument) and low <= argument <= high:
                return int(argument)
            return Unusable(f"is {argument!r:.60}", f"an {parameter.type}, {low} to {high}")


def _handle_value(argument: Any, kind: type[Handle], attribute: str) -> Value:
    if argument is None:
        return None
    fault = handle_fault(argument, kind)
    value: Value = Unusable(*fault) if fault else getattr(argument, attribute)
    return value


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
