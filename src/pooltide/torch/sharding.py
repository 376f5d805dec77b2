"""DTensor sharding rules for the operators.

Each device computes its shard of the batch or of the channels, without communication. PyTorch redistributes
any other placement first.
DTensor is slow to import, so `add_rules` adds the rules only after the program has imported DTensor.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from ..operators.catalog import gradients

_registered = False


def add_rules() -> None:
    """Adds the rules once, if DTensor has been imported."""
    global _registered
    if not _registered and "torch.distributed.tensor" in sys.modules:
        _registered = True
        from torch.distributed.tensor.experimental import register_sharding

        for function in gradients():
            register_sharding(getattr(torch.ops.pooltide, function).default)(_placements)


def _placements(grad_output: Any, plane: Any, *rest: Any) -> list[tuple[list[Any], list[Any]]]:
    """Returns the allowed placements: for each, that of the result and those of the arguments."""
    from torch.distributed.tensor import Replicate, Shard

    tensors = [hasattr(argument, "placements") for argument in (grad_output, plane, *rest)]
    spatial = len(plane)
    every = [Replicate(), *(Shard(axis) for axis in range(grad_output.ndim - spatial))]
    return [([place], [place if tensor else None for tensor in tensors]) for place in every]
