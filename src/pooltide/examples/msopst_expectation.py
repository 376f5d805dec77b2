"""Golden data for msOpST: the file that calc_expect_func_file of a case names.

    "calc_expect_func_file": "msopst_expectation.py:avg_pool2d_backward"

msOpST calls the function with the inputs, outputs and attributes of the case, by their names.
"""

from pooltide.acceptance.hooks import expectation

avg_pool2d_backward = expectation("aclnnAvgPool2dBackward")
adaptive_avg_pool3d_backward = expectation("aclnnAdaptiveAvgPool3dBackward")
adaptive_max_pool2d_backward = expectation("aclnnAdaptiveMaxPool2dBackward")
adaptive_max_pool3d_backward = expectation("aclnnAdaptiveMaxPool3dBackward")
