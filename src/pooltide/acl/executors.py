"""Takes the checked call and the plan of phase one, and new addresses for the tensors of an executor.

Returns executors, which phase two runs. It must not touch the data of tensors, nor submit jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..kernels.plan import Plan, written
from ..operators.call import Call, is_int
from ..operators.dtypes import STATUS
from .error_reports import ACLNN_INVALID, ACLNN_STATUSES, Refused, entry_point
from .handles import destroy, destroyed_mark, require_live
from .scalars_and_lists import aclTensorList
from .tensor_descriptors import aclTensor, device_address, live_tensor

if TYPE_CHECKING:
    from .phase_two import Launch

INNER_NULL = STATUS["ACLNN_ERR_INNER_NULLPTR"]


@dataclass(eq=False)
class aclOpExecutor:
    """A planned call. It runs once; a repeatable one runs any number of times until it is destroyed."""

    must_be: ClassVar[str] = "a live aclOpExecutor of a GetWorkspaceSize call"
    call: Call
    tensors: Mapping[str, aclTensor]  # by role: snapshots of those of phase one; never changed, but replaced
    plan: Plan
    kernel: Callable[..., Any] | None = None  # the plan's kernel, where it can be called directly
    launch: Launch | None = None  # of the last call of a repeatable executor
    repeatable: bool = False
    used: bool = False
    alive: bool = True

    def __repr__(self) -> str:
        return (
            f"<aclOpExecutor of {self.call.operator.name}: {self.plan.problem}{destroyed_mark(self.alive)}>"
        )


def _live_executor(executor: Any) -> aclOpExecutor:
    if executor is None:
        text = "executor is null; it must be an executor of a GetWorkspaceSize call."
        raise Refused(INNER_NULL, text)
    return require_live("executor", executor, aclOpExecutor)


@entry_point(int, ACLNN_STATUSES)
def aclSetAclOpExecutorRepeatable(executor: aclOpExecutor | None) -> int:
    """Let the executor serve any number of calls, until aclDestroyAclOpExecutor."""
    live = _live_executor(executor)
    if live.used and not live.repeatable:
        text = "executor has served its one call; it must be made repeatable before that."
        raise Refused(ACLNN_INVALID, text)
    live.repeatable = True
    return 0


@entry_point(int, ACLNN_STATUSES)
def aclDestroyAclOpExecutor(executor: aclOpExecutor | None) -> int:
    destroy("executor", executor, aclOpExecutor)
    if executor is not None:
        executor.launch = None  # which holds memory
    return 0


def _set_address(executor: Any, index: Any, tensor: Any, addr: Any, which: str) -> int:
    """Give the tensor `index` of the executor a new address. `which`: "input", "output" or "" for all."""
    live = _live_executor(executor)
    new = live_tensor(tensor, INNER_NULL)
    outputs = set(written(live.plan.problem))
    roles = [role for role in live.tensors if not which or (role in outputs) == (which == "output")]
    if not is_int(index) or not 0 <= index < len(roles):
        must = (
            f"it must be 0 to {len(roles) - 1}, as the call has {len(roles)} {which}{which and ' '}tensors."
        )
        raise Refused(ACLNN_INVALID, f"index is {index!r:.40}; {must}")
    old = live.tensors[roles[index]]
    if new.meta != old.meta:
        parameter = live.call.operator.by_role(roles[index])
        name = parameter.name if parameter else roles[index]
        must = f"it must have the shape, strides, dtype and format of {name} in phase one, {old}."
        raise Refused(ACLNN_INVALID, f"tensor is {new}; {must}")
    address = device_address("addr", addr)
    live.tensors = {**live.tensors, roles[index]: new.snapshot(address)}
    new.move(address)
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
    live = _live_executor(executor)
    require_live("tensors", tensors, aclTensorList, null_status=INNER_NULL)
    must = f"{live.call.operator.name} takes no list of tensors, so it must not be called."
    raise Refused(ACLNN_INVALID, f"irIndex is {index!r:.40}; {must}")


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
