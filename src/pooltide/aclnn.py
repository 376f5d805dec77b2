"""The two functions of each documented operator, made from the operator pages.

    size, executor, ret = aclnnXGetWorkspaceSize(inputs…, attributes…, outputs…)
    ret = aclnnX(workspace, size, executor, stream)

`help` of the first function lists the operator's parameters, products and rules.
"""

from .acl.phases import phase_functions

FUNCTIONS = phase_functions()
globals().update(FUNCTIONS)

__all__ = ["FUNCTIONS"]  # and the names in FUNCTIONS
