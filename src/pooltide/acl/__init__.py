"""CANN's documented runtime on this machine: memory, tensors, streams, messages.

The functions have their C names. They return the C out-parameters first and the status last; None is
the null pointer. `aclGetRecentErrMsg()` says why the calling thread's last call failed.
"""

from typing import TYPE_CHECKING

from ..operators.dtypes import DTYPES, ENUMS, ERRORS, FORMATS, STATUS
from .arrays import tensor_from_numpy, tensor_to_numpy
from .handles import aclIntArray, aclOpExecutor, aclTensor
from .objects import (
    aclCreateIntArray,
    aclCreateTensor,
    aclDestroyAclOpExecutor,
    aclDestroyIntArray,
    aclDestroyTensor,
    aclSetAclOpExecutorRepeatable,
)
from .runtime import (
    aclFinalize,
    aclGetRecentErrMsg,
    aclInit,
    aclrtCreateStream,
    aclrtCtxGetSysParamOpt,
    aclrtCtxSetSysParamOpt,
    aclrtDestroyStream,
    aclrtFree,
    aclrtMalloc,
    aclrtMemcpy,
    aclrtResetDevice,
    aclrtSetDevice,
    aclrtSynchronizeStream,
)
from .state import get_checks, get_product, set_checks, set_product

CONSTANTS: dict[str, int] = (
    {dtype.constant: dtype.code for dtype in DTYPES.values()}
    | {f"ACL_FORMAT_{name}": code for name, code in FORMATS.items()}
    | {name: code for enum in ENUMS.values() for name, code in enum.items()}
    | ERRORS
    | STATUS
)
globals().update(CONSTANTS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> int: ...


__all__ = [
    "aclCreateIntArray",
    "aclCreateTensor",
    "aclDestroyAclOpExecutor",
    "aclDestroyIntArray",
    "aclDestroyTensor",
    "aclFinalize",
    "aclGetRecentErrMsg",
    "aclInit",
    "aclIntArray",
    "aclOpExecutor",
    "aclSetAclOpExecutorRepeatable",
    "aclTensor",
    "aclrtCreateStream",
    "aclrtCtxGetSysParamOpt",
    "aclrtCtxSetSysParamOpt",
    "aclrtDestroyStream",
    "aclrtFree",
    "aclrtMalloc",
    "aclrtMemcpy",
    "aclrtResetDevice",
    "aclrtSetDevice",
    "aclrtSynchronizeStream",
    "get_checks",
    "get_product",
    "set_checks",
    "set_product",
    "tensor_from_numpy",
    "tensor_to_numpy",
]
