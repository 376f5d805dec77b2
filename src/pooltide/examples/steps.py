"""The steps that every example takes: start, tensors on the device, reading a result, the end."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pooltide import acl


def must(ret: int, what: str) -> None:
    """End the program with the message of the runtime if a call failed."""
    if ret != acl.ACL_SUCCESS:
        raise SystemExit(f"{what} failed, status {ret}: {acl.aclGetRecentErrMsg()}")


class Device:
    """Device 0 with one stream, from aclInit to aclFinalize. Frees its tensors and memory at the end."""

    def __enter__(self) -> Device:
        self.memory: list[int] = []
        self.tensors: list[acl.aclTensor] = []
        must(acl.aclInit(None), "aclInit")
        must(acl.aclrtSetDevice(0), "aclrtSetDevice")
        self.stream, ret = acl.aclrtCreateStream()
        must(ret, "aclrtCreateStream")
        return self

    def allocate(self, size: int) -> int | None:
        """The address of `size` bytes of device memory; None for 0 bytes, as for an empty workspace."""
        if size == 0:
            return None
        address, ret = acl.aclrtMalloc(size, acl.ACL_MEM_MALLOC_HUGE_FIRST)
        must(ret, "aclrtMalloc")
        assert address is not None
        self.memory.append(address)
        return address

    def tensor(self, array: NDArray[Any], dtype: int, format: int) -> acl.aclTensor:
        """Allocate memory, copy the array to it, and describe it (CreateAclTensor in CANN's documents)."""
        address = self.allocate(array.nbytes)
        ret = acl.aclrtMemcpy(address, array.nbytes, array, array.nbytes, acl.ACL_MEMCPY_HOST_TO_DEVICE)
        must(ret, "aclrtMemcpy")
        tensor = acl.aclCreateTensor(array.shape, dtype, None, 0, format, array.shape, address)
        if tensor is None:
            raise SystemExit(f"aclCreateTensor failed: {acl.aclGetRecentErrMsg()}")
        self.tensors.append(tensor)
        return tensor

    def run(self, phase_two: Callable[..., int], size: int, executor: Any) -> None:
        """Allocate the workspace, and submit the operator to the stream."""
        must(phase_two(self.allocate(size), size, executor, self.stream), phase_two.__name__)

    def read(self, tensor: acl.aclTensor, dtype: Any) -> NDArray[Any]:
        """Wait for the stream, then copy a tensor to the host."""
        must(acl.aclrtSynchronizeStream(self.stream), "aclrtSynchronizeStream")
        result = np.empty(tensor.shape, dtype)
        kind = acl.ACL_MEMCPY_DEVICE_TO_HOST
        must(acl.aclrtMemcpy(result, result.nbytes, tensor.address, result.nbytes, kind), "aclrtMemcpy")
        return result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for tensor in self.tensors:
            acl.aclDestroyTensor(tensor)
        for address in self.memory:
            acl.aclrtFree(address)
        acl.aclrtDestroyStream(self.stream)
        acl.aclrtResetDevice(0)
        acl.aclFinalize()
