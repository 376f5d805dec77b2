"""Pooling gradients for PyTorch.

The functions `*_backward` take tensors and return gradients. `functional` has differentiable pools.
`patch()` makes PyTorch's own pools use our gradients, `patch(forward=True)` our forwards, too. Importing this
package registers the operators `torch.ops.pooltide.*`.
"""

import torch

from . import autograd, functional, operators, sharding
from .backward import (
    adaptive_avg_pool1d_backward,
    adaptive_avg_pool2d_backward,
    adaptive_avg_pool3d_backward,
    adaptive_max_pool1d_backward,
    adaptive_max_pool2d_backward,
    adaptive_max_pool3d_backward,
    avg_pool1d_backward,
    avg_pool2d_backward,
    avg_pool3d_backward,
    max_pool1d_backward,
    max_pool2d_backward,
    max_pool3d_backward,
)
from .devices import index_errors
from .patching import Patch, is_patched, patch
from .unpools import max_unpool1d_backward, max_unpool2d_backward, max_unpool3d_backward

__all__ = [
    "Patch",
    "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d_backward",
    "adaptive_max_pool1d_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    "avg_pool1d_backward",
    "avg_pool2d_backward",
    "avg_pool3d_backward",
    "functional",
    "index_errors",
    "is_patched",
    "max_pool1d_backward",
    "max_pool2d_backward",
    "max_pool3d_backward",
    "max_unpool1d_backward",
    "max_unpool2d_backward",
    "max_unpool3d_backward",
    "patch",
]

_library = torch.library.Library("pooltide", "DEF")  # type: ignore[no-untyped-call]
operators.register(_library)
autograd.register(_library)
sharding.add_rules()
