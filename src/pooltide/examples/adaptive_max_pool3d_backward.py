"""Gradient of 3-D adaptive max pooling in bfloat16. CANN's documents have no program for it.

The windows overlap: one cell is the maximum of several windows and sums their gradients.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pooltide import acl, aclnn
from pooltide.examples.steps import Device, must

FUNCTION = "adaptive_max_pool3d_backward"
GRAD_OUTPUT = np.array([1, 2, 3, 4], ml_dtypes.bfloat16).reshape(1, 1, 1, 2, 2)
SELF = np.zeros((1, 1, 2, 3, 3), ml_dtypes.bfloat16)
INDICES = np.array([4, 4, 13, 17], np.int32).reshape(1, 1, 1, 2, 2)
ATTRIBUTES: dict[str, Any] = {}


def main() -> NDArray[Any]:
    with Device() as device:
        grad_output = device.tensor(GRAD_OUTPUT, acl.ACL_BF16, acl.ACL_FORMAT_NCDHW)
        x = device.tensor(SELF, acl.ACL_BF16, acl.ACL_FORMAT_NCDHW)
        indices = device.tensor(INDICES, acl.ACL_INT32, acl.ACL_FORMAT_NCDHW)
        grad_input = device.tensor(SELF, acl.ACL_BF16, acl.ACL_FORMAT_NCDHW)

        size, executor, ret = aclnn.aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize(
            grad_output, x, indices, grad_input
        )
        must(ret, "aclnnAdaptiveMaxPool3dBackwardGetWorkspaceSize")
        device.run(aclnn.aclnnAdaptiveMaxPool3dBackward, size, executor)
        return device.read(grad_input, ml_dtypes.bfloat16)


if __name__ == "__main__":
    print(main())
