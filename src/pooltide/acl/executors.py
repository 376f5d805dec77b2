"""Takes the checked call and the plan of phase one, and new addresses for the tensors of an executor.

Returns executors, which phase two runs. It must not touch the data of tensors, nor submit jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..operators.call import Call, is_int
from ..operators.dtypes import STATUS
from ..operators.pages import Parameter
from .error_reports import ACLNN_INVALID, ACLNN_STATUSES, Refused, entry_point
from .handles import destroy, destroyed_mark, require_live
from .scalars_and_lists import aclTensorList
from .tensor_descriptors import aclTensor, device_address, live_tensor

if TYPE_CHECKING:
    from .memory_blocks import Range
    from .phase_two import Launch

INNER_NULL = STATUS["ACLNN_ERR_INNER_NULLPTR"]
Tensors = Mapping[str, aclTensor]  # by the parameter's name; those of a list as "name[0]"
Run = Callable[[int | None, str], object]  # a job: takes the workspace's address and the level of checks


class Work(Protocol):
    """What the job of a checked call does. Pools and users' functions differ in nothing else."""

    @property
    def scratch(self) -> int:
        """Bytes of workspace that the job needs."""

    @property
    def quick(self) -> bool:
        """Whether a thread that waits for the stream may run the job."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors whose data the job reads, by their keys in `Tensors`."""

    @property
    def writes(self) -> tuple[str, ...]:
        """The tensors that the job writes."""

    def prepare(self, tensors: Tensors, ranges: tuple[Range, ...]) -> Run:
        """The job for these tensors. `ranges` has the cells of those that are inside their blocks."""


@dataclass(eq=False)
class aclOpExecutor:
    """A planned call. It runs once; a repeatable one runs any number of times until it is destroyed."""

    must_be: ClassVar[str] = "a live aclOpExecutor of a GetWorkspaceSize call"
    call: Call
    tensors: Tensors  # snapshots of those of phase one; never changed, but replaced
    work: Work
    workspace: int  # bytes that phase one asked for
    launch: Launch | None = None  # of the last call of a repeatable executor
    repeatable: bool = False
    used: bool = False
    alive: bool = True

    def __repr__(self) -> str:
        return f"<aclOpExecutor of {self.call.operator.name}: {self.work}{destroyed_mark(self.alive)}>"


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


def _parameter(live: aclOpExecutor, name: str, index: Any, which: str) -> Parameter:
    """The tensor parameter `index` of the call. `which`: "input", "output" or "" for all."""
    found = [p for p in live.call.operator.parameters if p.is_tensor and live.call.values[p.name] is not None]
    writes = live.call.operator.writes
    if which:
        found = [p for p in found if writes(p) == (which == "output")]
    if not is_int(index) or not 0 <= index < len(found):
        count = f"{len(found)} {which}{which and ' '}tensors"
        must = f"it must be 0 to {len(found) - 1}, as the call has {count}."
        raise Refused(ACLNN_INVALID, f"{name} is {index!r:.40}; {must}")
    return found[index]


def _replace(live: aclOpExecutor, key: str, new: aclTensor, addr: Any) -> int:
    old = live.tensors[key]
    if new.meta != old.meta:
        must = f"it must have the shape, strides, dtype and format of {key} in phase one, {old}."
        raise Refused(ACLNN_INVALID, f"tensor is {new}; {must}")
    address = device_address("addr", addr)
    live.tensors = {**live.tensors, key: new.snapshot(address)}
    new.move(address)
    return 0


def _set_address(executor: Any, index: Any, tensor: Any, addr: Any, which: str) -> int:
    """Give the tensor `index` of the executor a new address. `which`: "input", "output" or "" for all."""
    live = _live_executor(executor)
    new = live_tensor(tensor, INNER_NULL)
    parameter = _parameter(live, "index", index, which)
    if parameter.type == "tensor_list":
        must = "aclSetDynamicTensorAddr and its kin take lists."
        raise Refused(ACLNN_INVALID, f"index is {index}, and {parameter.name} is a list of tensors; {must}")
    return _replace(live, parameter.name, new, addr)


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


def _set_dynamic(executor: Any, index: Any, at: Any, tensors: Any, addr: Any, which: str) -> int:
    """Give tensor `at` of a list of tensors a new address. `which`: "input", "output" or "" for all."""
    live = _live_executor(executor)
    members = require_live("tensors", tensors, aclTensorList, null_status=INNER_NULL).values
    if not any(p.type == "tensor_list" for p in live.call.operator.parameters):
        must = f"{live.call.operator.name} takes no list of tensors, so it must not be called."
        raise Refused(ACLNN_INVALID, f"irIndex is {index!r:.40}; {must}")
    parameter = _parameter(live, "irIndex", index, which)
    if parameter.type != "tensor_list":
        must = "it must be the number of a list of tensors."
        raise Refused(ACLNN_INVALID, f"irIndex is {index}, and {parameter.name} is one tensor; {must}")
    count = sum(key.startswith(f"{parameter.name}[") for key in live.tensors)
    if not is_int(at) or not 0 <= at < min(count, len(members)):
        must = f"it must be 0 to {min(count, len(members)) - 1}, as {parameter.name} has {count} tensors."
        raise Refused(ACLNN_INVALID, f"relativeIndex is {at!r:.40}; {must}")
    return _replace(live, f"{parameter.name}[{at}]", live_tensor(members[at], INNER_NULL), addr)


@entry_point(int, ACLNN_STATUSES)
def aclSetDynamicTensorAddr(executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any) -> int:
    """Change the address of one tensor of a list; `irIndex` counts the tensors and lists of the call."""
    return _set_dynamic(executor, irIndex, relativeIndex, tensors, addr, "")


@entry_point(int, ACLNN_STATUSES)
def aclSetDynamicInputTensorAddr(
    executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any
) -> int:
    """The same as aclSetDynamicTensorAddr; `irIndex` counts the inputs."""
    return _set_dynamic(executor, irIndex, relativeIndex, tensors, addr, "input")


@entry_point(int, ACLNN_STATUSES)
def aclSetDynamicOutputTensorAddr(
    executor: Any, irIndex: int, relativeIndex: int, tensors: Any, addr: Any
) -> int:
    """The same as aclSetDynamicTensorAddr; `irIndex` counts the outputs."""
    return _set_dynamic(executor, irIndex, relativeIndex, tensors, addr, "output")
