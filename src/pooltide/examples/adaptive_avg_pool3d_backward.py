"""Gradient of 3-D adaptive average pooling: 1…8 spread over two cells each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pooltide import acl, aclnn
from pooltide.examples.steps import Device, must

FUNCTION = "adaptive_avg_pool3d_backward"
GRAD_OUTPUT = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 1, 1, 2)
SELF = np.ones((2, 2, 1, 1, 4), np.float32)
ATTRIBUTES: dict[str, Any] = {}


def main() -> NDArray[np.float32]:
    with Device() as device:
        grad_output = device.tensor(GRAD_OUTPUT, acl.ACL_FLOAT, acl.ACL_FORMAT_NCDHW)
        x = device.tensor(SELF, acl.ACL_FLOAT, acl.ACL_FORMAT_NCDHW)
        out = device.tensor(np.zeros_like(SELF), acl.ACL_FLOAT, acl.ACL_FORMAT_NCDHW)

        size, executor, ret = aclnn.aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(grad_output, x, out)
        must(ret, "aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize")
        device.run(aclnn.aclnnAdaptiveAvgPool3dBackward, size, executor)
        return device.read(out, np.float32)


if __name__ == "__main__":
    print(main())
