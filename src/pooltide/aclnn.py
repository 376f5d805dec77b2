"""The two functions of each operator, made from the operator pages.

    size, executor, ret = aclnnXGetWorkspaceSize(inputs…, attributes…, outputs…)
    ret = aclnnX(workspace, size, executor, stream)

The first takes and checks the operator's arguments, which its `help` lists; the second computes, on a stream.
This module must not touch the arguments: `acl` does. Operators of your own come from the folders that the
environment variable POOLTIDE_OPERATORS lists.
"""

from .acl.phase_one import phase_functions as _phase_functions
from .operators.catalog import documented, folders, user_operators

FUNCTIONS = _phase_functions((*documented().values(), *user_operators(folders()).values()))
globals().update(FUNCTIONS)

__all__ = ["FUNCTIONS"]  # and the names in FUNCTIONS
