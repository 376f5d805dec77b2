"""Gradient of 2-D average pooling: one window over a 4×4 plane, so a sixteenth everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pooltide import acl, aclnn
from pooltide.examples.steps import Device, must

FUNCTION = "avg_pool2d_backward"
GRAD_OUTPUT = np.ones((1, 16, 1, 1), np.float32)
SELF = np.ones((1, 16, 4, 4), np.float32)
ATTRIBUTES: dict[str, Any] = {
    "kernel_size": (4, 4),
    "stride": (1, 1),
    "padding": (0, 0),
    "ceil_mode": False,
    "count_include_pad": True,
    "divisor_override": None,
}
ALLOW_FP32_DOWN_PRECISION = 1


def main() -> NDArray[np.float32]:
    with Device() as device:
        grad_output = device.tensor(GRAD_OUTPUT, acl.ACL_FLOAT, acl.ACL_FORMAT_NCHW)
        x = device.tensor(SELF, acl.ACL_FLOAT, acl.ACL_FORMAT_NCHW)
        grad_input = device.tensor(np.ones_like(SELF), acl.ACL_FLOAT, acl.ACL_FORMAT_NCHW)
        kernel, stride, padding = map(acl.aclCreateIntArray, list(ATTRIBUTES.values())[:3])

        size, executor, ret = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(
            grad_output, x, kernel, stride, padding, False, True, 0, ALLOW_FP32_DOWN_PRECISION, grad_input
        )
        must(ret, "aclnnAvgPool2dBackwardGetWorkspaceSize")
        device.run(aclnn.aclnnAvgPool2dBackward, size, executor)
        result = device.read(grad_input, np.float32)
        for array in (kernel, stride, padding):
            acl.aclDestroyIntArray(array)
    return result


if __name__ == "__main__":
    print(main())
