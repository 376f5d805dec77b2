"""The two functions of each documented operator, made from the operator pages.

    size, executor, ret = aclnnXGetWorkspaceSize(inputs…, attributes…, outputs…)
    ret = aclnnX(workspace, size, executor, stream)

The first takes and checks the operator's arguments, which its `help` lists; the second computes, on a stream.
This module must not touch the arguments: `acl` does.
"""

from .acl.phase_one import phase_one_function
from .acl.phase_two import phase_two_function
from .operators.catalog import documented

FUNCTIONS = {
    function.__name__: function
    for operator in documented().values()
    for function in (phase_one_function(operator), phase_two_function(operator))
}
globals().update(FUNCTIONS)

__all__ = ["FUNCTIONS"]  # and the names in FUNCTIONS
