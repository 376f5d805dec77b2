"""Gradient of 2-D adaptive max pooling, with the wrong input of the program in CANN's documents.

Its index is the int32 value 6 in a buffer of four bytes, declared INT64: eight bytes are read where
there are four, and the 2×2 plane has no cell 6 either. By default the computation ignores the index,
prints a warning to stderr, and returns four zeros. With POOLTIDE_CHECKS=strict the stream fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pooltide import acl, aclnn
from pooltide.examples.steps import Device, must

FUNCTION = "adaptive_max_pool2d_backward"
GRAD_OUTPUT = np.full((1, 1, 1, 1), 0.4757, np.float32)
SELF = np.array([0.0850, -0.5147, -0.0212, -0.5654], np.float32).reshape(1, 1, 2, 2)
INDICES = np.full((1, 1, 1, 1), 6, np.int32)
ATTRIBUTES: dict[str, Any] = {}


def main() -> NDArray[np.float32]:
    with Device() as device:
        grad_output = device.tensor(GRAD_OUTPUT, acl.ACL_FLOAT, acl.ACL_FORMAT_ND)
        x = device.tensor(SELF, acl.ACL_FLOAT, acl.ACL_FORMAT_ND)
        indices = device.tensor(INDICES, acl.ACL_INT64, acl.ACL_FORMAT_ND)
        grad_input = device.tensor(np.zeros_like(SELF), acl.ACL_FLOAT, acl.ACL_FORMAT_ND)

        size, executor, ret = aclnn.aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize(
            grad_output, x, indices, grad_input
        )
        must(ret, "aclnnAdaptiveMaxPool2dBackwardGetWorkspaceSize")
        device.run(aclnn.aclnnAdaptiveMaxPool2dBackward, size, executor)
        return device.read(grad_input, np.float32)


if __name__ == "__main__":
    print(main())
