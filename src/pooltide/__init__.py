"""Pooling and its gradients: exact, deterministic, and as fast as memory allows.

The NumPy functions are here; `pooltide.acl` and `pooltide.aclnn` are the documented interface.
"""

from .arrays import functions
from .arrays.functions import *  # noqa: F403
from .kernels.calls import get_cache_bytes, set_cache_bytes
from .kernels.threads import get_num_threads, set_num_threads

__version__ = "0.1.0"

__all__ = ["get_cache_bytes", "get_num_threads", "set_cache_bytes", "set_num_threads"]
__all__ += functions.__all__
