"""DTensor rules: shards of the batch and of the channels are gradients of their own, so they run where
they lie. Any other placement is redistributed first.

PyTorch's rules are kept with DTensor itself, which is slow to import: ours are added when DTensor is
there and an operator is asked for.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from ..operators.catalog import gradients

_registered = False


def add_rules() -> None:
    """Add the rules if DTensor has been imported, once."""
    global _registered
    if not _registered and "torch.distributed.tensor" in sys.modules:
        _registered = True
        from torch.distributed.tensor.experimental import register_sharding

        for function in gradients():
            register_sharding(getattr(torch.ops.pooltide, function).default)(_placements)


def _placements(grad_output: Any, plane: Any, *rest: Any) -> list[tuple[list[Any], list[Any]]]:
    from torch.distributed.tensor import Replicate, Shard

    tensors = [hasattr(argument, "placements") for argument in (grad_output, plane, *rest)]
    spatial = len(plane)
    every = [Replicate(), *(Shard(axis) for axis in range(grad_output.ndim - spatial))]
    return [([place], [place if tensor else None for tensor in tensors]) for place in every]
