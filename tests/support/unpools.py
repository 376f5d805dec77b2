"""What the tests of PyTorch's unpools share: the two modes, and values to unpool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pooltide.torch as pt
from pools import quiet_patch

NAMES = ("max_unpool1d", "max_unpool2d", "max_unpool3d")
SIZES = (9, 7, 8)
each_rank = pytest.mark.parametrize("axes", [1, 2, 3])
each_mode = pytest.mark.parametrize("name", ["patched", "functional"])


@contextmanager
def mode(name: str) -> Iterator[None]:
    if name == "patched":
        with quiet_patch(forward=False):
            yield
        return
    with pytest.MonkeyPatch.context() as replaced:
        for unpool in NAMES:
            replaced.setattr(F, unpool, getattr(pt.functional, unpool))
        yield


def pooled(axes: int, batch: tuple[int, ...] = (2, 3), window: Any = (2, 2, 0), dtype: Any = None) -> Any:
    """Values, indices and the plane that was pooled."""
    random = torch.Generator().manual_seed(axes)
    x = torch.randn(*batch, *SIZES[:axes], generator=random, dtype=dtype or torch.float64)
    return *getattr(F, f"max_pool{axes}d")(x, *window, return_indices=True), x.shape[-axes:]


def unpool(x: Any, indices: Any, plane: Any, window: Any = (2, 2, 0)) -> Any:
    return getattr(F, f"max_unpool{len(plane)}d")(x, indices, *window, plane)
