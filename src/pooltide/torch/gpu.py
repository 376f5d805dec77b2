"""The devices of tensors: which GPU one is, whether it has kernels, and the indices that it dropped."""

from __future__ import annotations

from types import ModuleType

import torch

from ..kernels import plan


def gpu_number(device: torch.device) -> int | None:
    """Returns the number of a GPU; None for the CPU."""
    if device.type != "cuda":
        return None
    return torch.cuda.current_device() if device.index is None else device.index


def missing(device: torch.device) -> str | None:
    """Returns why a device has no kernels at all; None if it has some."""
    backend = plan.gpu_backend() if device.type == "cuda" else None
    return backend if isinstance(backend, str) else None


def index_errors(device: torch.device | str | int, *, clear: bool = False) -> tuple[int, int | None]:
    """Returns how many indices outside their plane a device has dropped, and the position of the first.

    The position is flat over grad_output; None if there is none. A GPU drops such indices in backward passes
    and in calls with `check_indices=False`; the CPU raises instead. `clear` resets the count. This waits for
    the device.
    """
    where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    backend = plan.gpu_backend() if where.type == "cuda" else ""
    if isinstance(backend, str):
        return 0, None
    number = torch.cuda.current_device() if where.index is None else where.index
    dropped: tuple[int, int | None] = backend.index_errors(number, clear)
    return dropped


def wait_for_kernels(timeout: float | None = None) -> bool:
    """Waits until the GPU kernels that are compiled in the background are ready, and takes them into use.

    A new problem runs on a slower general kernel until its own kernel is compiled; the bits are the same.
    Call this before a benchmark, or before a CUDA graph is captured: a graph keeps the kernels that it has.
    Returns False if it took longer than `timeout` seconds.
    """
    if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
        raise ValueError(
            f"wait_for_kernels: timeout is {timeout!r}; it must be None or a number of seconds, at least 0."
        )
    backend = gpu_backend()
    return backend is None or bool(backend.wait_for_kernels(timeout))


def gpu_backend() -> ModuleType | None:
    """Returns the module that launches GPU kernels; None where PyTorch or this machine has no CUDA."""
    backend = plan.gpu_backend() if torch.version.cuda else ""
    return None if isinstance(backend, str) else backend


def count_index_errors(outside: torch.Tensor) -> None:
    """Adds indices that PyTorch's operators dropped to what `index_errors` returns. Does not wait.

    `outside` says of each index whether it is outside its plane. A CUDA graph does not count: its capture may
    be the first call, and cannot make the record.
    """
    backend = plan.gpu_backend() if outside.is_cuda else ""
    if isinstance(backend, str) or not outside.numel() or torch.cuda.is_current_stream_capturing():
        return
    kept = backend.record(outside.get_device())
    flags = outside.flatten()
    first = torch.where(flags.any(), flags.byte().argmax(), torch.iinfo(torch.int64).max)
    kept.copy_(torch.stack([kept[0] + flags.sum(), torch.minimum(kept[1], first)]))
