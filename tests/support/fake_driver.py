"""A CUDA driver that launches Python functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_drivers: list[Driver] = []


class Config(ctypes.Structure):
    """CUlaunchConfig"""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class Driver:
    """A CUDA driver that hands each launch to `launched`: settings, the kernel's handle, and its arguments.

    `launched` returns the driver's status.
    """

    def __init__(self, launched: Callable[[Config, int, int], int]) -> None:
        def enqueue(settings: int, function: int, places: int, extra: None) -> int:
            arguments = ctypes.c_void_p.from_address(places).value or 0
            return launched(Config.from_address(settings), function, arguments)

        self.cuLaunchKernelEx = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * 4)(enqueue)
        _drivers.append(self)  # cached launches have the function's address

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> int:
        return 0
