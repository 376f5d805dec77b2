"""DTensor sharding rules for the operators.

Each device computes its shard of the batch or of the channels, without communication. PyTorch redistributes
any other placement first. A gradient lies as the forward's input does, which is no argument of the operators:
`placed_as` shards grad_output so before the call.
DTensor is slow to import, so `add_rules` adds the rules only after the program has imported DTensor.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from ...operators.catalog import gradients

# The mesh and the placements of a DTensor.
Sharding = tuple[Any, tuple[Any, ...]]

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


def sharding_of(x: torch.Tensor) -> Sharding | None:
    """Returns how a DTensor is sharded; None for any other tensor, and under torch.compile."""
    if type(x) in (torch.Tensor, torch.nn.Parameter) or torch.compiler.is_compiling():
        return None
    mesh, placements = getattr(x, "device_mesh", None), getattr(x, "placements", None)
    return None if mesh is None or placements is None else (mesh, placements)


def placed_as(sharding: Sharding | None, grad_output: torch.Tensor, axes: int) -> torch.Tensor:
    """Returns grad_output sharded as the input, if that is sharded by batch or channels only."""
    own = sharding_of(grad_output) if sharding is not None else None
    if sharding is None or own is None or own == sharding:
        return grad_output
    mesh, placements = sharding
    lead = grad_output.ndim - axes
    sharded = any(place.is_shard() for place in placements)
    if not sharded or not all(
        place.is_replicate() or getattr(place, "dim", lead) < lead for place in placements
    ):
        return grad_output
    moved: torch.Tensor = grad_output.redistribute(mesh, placements)  # type: ignore[attr-defined]
    return moved
