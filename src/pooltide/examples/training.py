"""Trains a small network twice from the same seed, and compares the weights bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn

import pooltide.torch


def digest(model: nn.Module) -> str:
    """A hash of the bits of all weights."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:12]


def train(make: Callable[[], nn.Module], shape: tuple[int, ...], device: str, steps: int = 5) -> str:
    torch.manual_seed(17)
    model = make().to(device)
    data = torch.randn(steps, *shape, generator=torch.Generator().manual_seed(19)).to(device)
    labels = torch.arange(shape[0], device=device) % 3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return digest(model)


def twice(make: Callable[[], nn.Module], shape: tuple[int, ...], device: str, patched: bool) -> str:
    """Train twice under use_deterministic_algorithms(True); say whether the weights are the same."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with pooltide.torch.patch() if patched else nullcontext():
            first, second = (train(make, shape, device) for _ in range(2))
    except RuntimeError as error:
        return f"raises: {str(error).splitlines()[0]:.60}"
    finally:
        torch.use_deterministic_algorithms(before)
    return f"the same weights, {first}" if first == second else "weights that differ"


def table(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> list[tuple[str, str, str]]:
    """Rows of (device, whose gradients, outcome of training twice)."""
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return [
        (device, "pooltide" if patched else "PyTorch", twice(make, shape, device, patched))
        for device in devices
        for patched in (False, True)
    ]


def show(rows: list[tuple[str, str, str]]) -> None:
    for device, whose, result in rows:
        print(f"{device:5} {whose:9} {result}")
