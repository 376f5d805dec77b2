"""The functions for executors: repeatable ones, and new addresses for their tensors."""

from __future__ import annotations

from typing import Any

from ..kernels.plan import written
from ..operators.call import is_int
from ..operators.dtypes import STATUS
from .handles import aclOpExecutor, aclTensor
from .objects import destroy, require_live
from .state import ACLNN_STATUSES, BAD, Refused, entry_point
from .values import aclTensorList
from .views import device_address, live_tensor

INNER_NULL = STATUS["ACLNN_ERR_INNER_NULLPTR"]


def _live_executor(executor: Any) -> aclOpExecutor:
    if executor is None:
        text = "executor is null; it must be an executor of a GetWorkspaceSize call."
        raise Refused(INNER_NULL, text)
    require_live("executor", executor, aclOpExecutor)
    found: aclOpExecutor = executor
    return found


@entry_point(int, ACLNN_STATUSES)
def aclSetAclOpExecutorRepeatable(executor: aclOpExecutor | None) -> int:
    """Let the executor serve any number of calls, until aclDestroyAclOpExecutor."""
    found = _live_executor(executor)
    if found.used and not found.repeatable:
        text = "executor has served its one call; it must be made repeatable before that."
        raise Refused(BAD, text)
    found.repeatable = True
    return 0


@entry_point(int, ACLNN_STATUSES)
def aclDestroyAclOpExecutor(executor: aclOpExecutor | None) -> int:
    return destroy("executor", executor, aclOpExecutor)


def _set_address(executor: Any, index: Any, tensor: Any, addr: Any, which: str) -> int:
    """Give the tensor `index` of the executor a new address. `which`: "input", "output" or "" for all."""
    found = _live_executor(executor)
    given = live_tensor(tensor, INNER_NULL)
    outputs = set(written(found.plan.problem))
    roles = [role for role in found.tensors if not which or (role in outputs) == (which == "output")]
    if not is_int(index) or not 0 <= index < len(roles):
        must = (
            f"it must be 0 to {len(roles) - 1}, as the call has {len(roles)} {which}{which and ' '}tensors."
        )
        raise Refused(BAD, f"index is {index!r:.40}; {must}")
    old = found.tensors[roles[index]]
    if given.meta != old.meta:
        parameter = found.call.operator.by_role(roles[index])
        name = parameter.name if parameter else roles[index]
        must = f"it must have the shape, strides, dtype and format of {name} in phase one, {old}."
        raise Refused(BAD, f"tensor is {given}; {must}")
    address = device_address("addr", addr)
    found.tensors = {**found.tensors, roles[index]: given.snapshot(address)}
    given.move(address)
    return 0


@entry_point(int, ACLNN_STATUSES)
def aclSetTensorAddr(
    executor: aclOpExecutor | None, index: int, tensor: aclTensor | None, addr: int | None
) -> int:
    """Change the address of a tensor of a repeatable executor; inputs count first, then outputs."""
    return _set_address(executor, index, tensor, addr, "")


@entry_point(int, ACLNN_STATUSES)
def aclSetInputTensorAddr(
    executor: aclOpExecutor | None, index: int, tensor: aclTensor | None, addr: int | None
) -> int:
    """The same as aclSetTensorAddr; `index` counts the inputs."""
    return _set_address(executor, index, tensor, addr, "input")


@entry_point(int, ACLNN_STATUSES)
def aclSetOutputTensorAddr(
    executor: aclOpExecutor | None, index: int, tensor: aclTensor | None, addr: int | None
) -> int:
    """The same as aclSetTensorAddr; `index` counts the outputs."""
    return _set_address(executor, index, tensor, addr, "output")


def AclSetTensorAddr(
    executor: aclOpExecutor | None, index: int, tensor: aclTensor | None, addr: int | None
) -> int:
    """Another spelling of aclSetTensorAddr."""
    return aclSetTensorAddr(executor, index, tensor, addr)


def AclSetInputTensorAddr(
    executor: aclOpExecutor | None, index: int, tensor: aclTensor | None, addr: int | None
) -> int:
    """Another spelling of aclSetInputTensorAddr."""
    return aclSetInputTensorAddr(executor, index, tensor, addr)


def AclSetOutputTensorAddr(
    executor: aclOpExecutor | None, index: int, tensor: aclTensor | None, addr: int | None
) -> int:
    """Another spelling of aclSetOutputTensorAddr."""
    return aclSetOutputTensorAddr(executor, index, tensor, addr)


def _set_dynamic(executor: Any, index: Any, tensors: Any) -> int:
    """Always refuses: no operator here takes a list of tensors."""
    found = _live_executor(executor)
    if tensors is None:
        raise Refused(INNER_NULL, "tensors is null; it must be a live aclTensorList of aclCreateTensorList.")
    require_live("tensors", tensors, aclTensorList)
    must = f"{found.call.operator.name} takes no list of tensors, so it must not be called."
    raise Refused(BAD, f"irIndex is {index!r:.40}; {must}")


@entry_point(int, ACLNN_STATUSES)
def aclSetDynamicTensorAddr(executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any) -> int:
    """Always refuses: no operator here takes a list of tensors."""
    return _set_dynamic(executor, irIndex, tensors)


@entry_point(int, ACLNN_STATUSES)
def aclSetDynamicInputTensorAddr(
    executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any
) -> int:
    """Always refuses: no operator here takes a list of tensors."""
    return _set_dynamic(executor, irIndex, tensors)


@entry_point(int, ACLNN_STATUSES)
def aclSetDynamicOutputTensorAddr(
    executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any
) -> int:
    """Always refuses: no operator here takes a list of tensors."""
    return _set_dynamic(executor, irIndex, tensors)
