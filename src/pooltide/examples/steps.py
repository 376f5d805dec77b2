"""The fixed parts of every program: start, tensors on the device, the end."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import acl


def must(ret: int, what: str) -> None:
    """Stop with the runtime's own words when a call fails."""
    if ret != acl.ACL_SUCCESS:
        raise SystemExit(f"{what} failed, status {ret}: {acl.aclGetRecentErrMsg()}")


class Device:
    """Device 0 with one stream, from aclInit to aclFinalize."""

    def __enter__(self) -> Device:
        self.memory: list[int] = []
        must(acl.aclInit(None), "aclInit")
        must(acl.aclrtSetDevice(0), "aclrtSetDevice")
        self.stream, ret = acl.aclrtCreateStream()
        must(ret, "aclrtCreateStream")
        return self

    def allocate(self, size: int) -> int | None:
        """Device memory of `size` bytes; none for 0, as a program does for its workspace."""
        if size == 0:
            return None
        address, ret = acl.aclrtMalloc(size, acl.ACL_MEM_MALLOC_HUGE_FIRST)
        must(ret, "aclrtMalloc")
        assert address is not None
        self.memory.append(address)
        return address

    def tensor(self, array: NDArray[Any], dtype: int, format: int) -> acl.aclTensor:
        """Allocate, copy, describe: what the documents' programs call CreateAclTensor."""
        address = self.allocate(array.nbytes)
        ret = acl.aclrtMemcpy(address, array.nbytes, array, array.nbytes, acl.ACL_MEMCPY_HOST_TO_DEVICE)
        must(ret, "aclrtMemcpy")
        tensor = acl.aclCreateTensor(array.shape, dtype, None, 0, format, array.shape, address)
        if tensor is None:
            raise SystemExit(f"aclCreateTensor failed: {acl.aclGetRecentErrMsg()}")
        return tensor

    def read(self, tensor: acl.aclTensor, dtype: Any) -> NDArray[Any]:
        """Copy a tensor's memory to the host."""
        result = np.empty(tensor.shape, dtype)
        kind = acl.ACL_MEMCPY_DEVICE_TO_HOST
        must(acl.aclrtMemcpy(result, result.nbytes, tensor.address, result.nbytes, kind), "aclrtMemcpy")
        return result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for address in self.memory:
            acl.aclrtFree(address)
        acl.aclrtDestroyStream(self.stream)
        acl.aclrtResetDevice(0)
        acl.aclFinalize()
