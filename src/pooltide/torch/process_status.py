"""What pooltide does in this process, and what in a model's training step is not deterministic.

`status()` describes PyTorch, the kernels and the patches; `status(model, *inputs)` also has a `Step`.
training_step.py runs it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import _native
from ..kernels.cuda.runtime import background, code_cache, compiler, nvrtc
from ..kernels.cuda.runtime.driver import NoCompiler
from . import aten
from .openmp import num_threads
from .patching import forward_overrides, gradient_overrides
from .releases import is_tested
from .training_step import Step, watch


@dataclass(frozen=True)
class Status:
    """What `status` found; `print` shows it in words."""

    pytorch: str  # its version
    tested: bool  # whether pooltide was tested with this release
    devices: tuple[str, ...]
    nvrtc: str | None  # the version of NVIDIA's compiler library, which compiles our GPU kernels
    nvrtc_fault: str | None  # why there is none
    kernel_cache: Path | None  # the folder of compiled GPU kernels
    kernel_cache_bytes: int
    kernels_ready: int  # GPU kernels that this process has loaded
    kernels_compiling: int  # GPU kernels that are being compiled in the background
    instruction_set: str
    threads: int
    patches: int  # that are active
    forward_patches: int  # those with forward=True
    fallbacks: dict[str, int]  # calls that PyTorch computed instead, by function and reason
    step: Step | None

    def __str__(self) -> str:
        return "\n".join(
            [
                f"PyTorch       {self.pytorch}, {'tested' if self.tested else 'not tested'} with pooltide",
                f"devices       {', '.join(self.devices)}",
                f"NVRTC         {self.nvrtc or f'not found: {self.nvrtc_fault}'}",
                f"kernel cache  {self.kernel_cache or 'none'}, {self.kernel_cache_bytes / 1e6:.1f} MB",
                f"GPU kernels   {self.kernels_ready} ready, {self.kernels_compiling} being compiled",
                f"CPU           {self.instruction_set}, {_counted(self.threads, 'thread')}",
                f"patched       {self._patched()}",
                *_left_to_pytorch(self.fallbacks),
                *([] if self.step is None else ["", str(self.step)]),
            ]
        )

    def _patched(self) -> str:
        if not self.patches:
            return "nothing"
        what = "gradients and forwards" if self.forward_patches else "gradients"
        return f"{what}, {_counted(self.patches, 'patch', 'patches')}"


def status(model: torch.nn.Module | None = None, *inputs: Any) -> Status:
    """Describes PyTorch, the kernels, the patches and the calls that PyTorch computed instead of pooltide.

    With a model and its inputs, it also runs training steps (forward, sum of the outputs, backward) and lists
    what raises or differs under `torch.use_deterministic_algorithms(True)`. The model, its gradients and
    buffers and the random generators are afterwards as they were.
    """
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(f"status: model is {type(model).__name__}; it must be a torch.nn.Module.")
    step = None if model is None else watch(model, inputs)
    version, fault = _nvrtc()
    cache = code_cache.folder()
    return Status(
        pytorch=torch.__version__,
        tested=is_tested(),
        devices=(
            "cpu",
            *(f"cuda:{n} {torch.cuda.get_device_name(n)}" for n in range(torch.cuda.device_count())),
        ),
        nvrtc=version,
        nvrtc_fault=fault,
        kernel_cache=cache,
        kernel_cache_bytes=0 if cache is None else _size(cache),
        kernels_ready=compiler.loaded(),
        kernels_compiling=len(background.unfinished()),
        instruction_set=_native.instruction_set(),
        threads=abs(num_threads()),
        patches=gradient_overrides.depth,
        forward_patches=forward_overrides.depth,
        fallbacks=aten.counted(),
        step=step,
    )


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _nvrtc() -> tuple[str | None, str | None]:
    try:
        return ".".join(map(str, nvrtc.library().version)), None
    except NoCompiler as missing:
        return None, str(missing)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.cubin"):
        with suppress(OSError):  # another process may delete it
            total += path.stat().st_size
    return total


def _left_to_pytorch(fallbacks: dict[str, int]) -> list[str]:
    if not fallbacks:
        return ["fallbacks     none: PyTorch computed no patched gradient"]
    return [f"fallbacks     {count} × {text}" for text, count in fallbacks.items()]
