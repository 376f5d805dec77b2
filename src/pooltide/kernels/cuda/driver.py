"""Launches of a compiled kernel by the CUDA driver itself.

Triton's launcher takes every argument apart on every call, which costs more than a small pool. Here all
arguments but the tensors' addresses are laid down once, so that a launch is a few stores and one C call.
The compiled program tells which parameters it has; where they are not those expected, as another release
of Triton may have it, there is no such launch, and Triton's own is used.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

Launcher = Callable[..., None]  # of a stream and the addresses
_INVALID_CONTEXT = 201
_HIDDEN = 2  # pointers to scratch memory, which our kernels have none of


class _Config(ctypes.Structure):
    """CUlaunchConfig"""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


@cache
def _driver() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
        library.cuLaunchKernelEx.argtypes = (ctypes.c_void_p,) * 4
    except (OSError, AttributeError):  # no driver, or one before CUDA 11.8
        return None
    return library


def _sizes(compiled: Any) -> list[int]:
    """The bytes of each parameter, by the program's text; none where it can't be read."""
    head = re.search(r"\.entry\s+\w+\s*\(([^)]*)\)", compiled.asm.get("ptx", ""))
    return [int(bits) // 8 for bits in re.findall(r"\.param\s+\.[a-z](\d+)", head[1])] if head else []


def launcher(
    compiled: Any, grid: int, pointers: int, arguments: Sequence[int], bind: Callable[[], None]
) -> Launcher | None:
    """What launches a kernel of Triton's; `arguments` follow the `pointers` that a call gives.

    `bind` makes the device's context this thread's.
    """
    driver, about = _driver(), compiled.metadata
    plain = {"num_ctas": 1, "global_scratch_size": 0, "profile_scratch_size": 0, "launch_pdl": False}
    if driver is None or any(getattr(about, name, usual) != usual for name, usual in plain.items()):
        return None
    function = compiled.function
    if getattr(about, "launch_cooperative_grid", False) or not isinstance(function, int):
        return None
    sizes, given = _sizes(compiled), pointers + len(arguments)
    hidden = sizes[given:]
    if len(sizes) < given or hidden not in ([], [8], [8] * _HIDDEN) or sizes[:pointers] != [8] * pointers:
        return None
    if any(not _fits(value, size) for value, size in zip(arguments, sizes[pointers:given], strict=True)):
        return None

    def lay_down() -> tuple[Any, _Config, int, int, Any]:
        words = (ctypes.c_int64 * len(sizes))(*[0] * pointers, *arguments)  # little-endian: short ones too
        start = ctypes.addressof(words)
        places = (ctypes.c_void_p * len(sizes))(*[start + 8 * i for i in range(len(sizes))])
        config = _Config((grid, 1, 1), (about.num_warps * 32, 1, 1), about.shared)
        return words, config, ctypes.addressof(config), ctypes.addressof(places), places

    free = [lay_down()]  # one for each thread that is in a launch
    launch = driver.cuLaunchKernelEx

    def run(stream: int, *addresses: int) -> None:
        block = free.pop() if free else lay_down()
        words, config, settings, places, _ = block
        words[:pointers] = addresses
        config.stream = stream
        status = launch(settings, function, places, None)
        if status == _INVALID_CONTEXT:  # a thread that has not used the device yet
            bind()
            status = launch(settings, function, places, None)
        free.append(block)
        if status:
            raise RuntimeError(f"{compiled.name}: the CUDA driver refuses the launch with error {status}")

    return run


def _fits(value: int, size: int) -> bool:
    return (size == 4 and -(2**31) <= value < 2**32) or (size == 8 and -(2**63) <= value < 2**63)
