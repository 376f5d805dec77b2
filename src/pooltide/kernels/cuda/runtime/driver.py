"""The CUDA driver: what a device is, loading kernels, and launching them.

    device_facts(device)                       sizes that plans depend on
    load_kernel(source, device, code)          machine code or PTX -> Kernel
    Kernel.launcher(grid, block, shared, arguments) -> run(stream, *addresses)

`launcher` packs all arguments except the addresses once; native/python/launches.cpp calls the driver.
Nothing here waits for the device, so launches can be captured in CUDA graphs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any

from ..source import Argument, Source, packed

Launcher = Callable[..., None]  # of a stream and the addresses
_INVALID_CONTEXT = 201
_USUAL_SHARED = 48 << 10  # bytes of shared memory that every kernel may have
_MAX_DYNAMIC_SHARED = 8  # of cuFuncSetAttribute
_RELAXED = 2  # of cuThreadExchangeStreamCaptureMode
_EARLY_DRIVER = 12030  # the first one that captures such launches in graphs


class NoCompiler(Exception):
    """Why no kernel can be compiled or loaded here: the caller uses another backend."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    capability: int  # compute capability: 90 is 9.0
    multiprocessors: int
    shared_per_block: int  # bytes of shared memory that a block may have
    shared_per_multiprocessor: int
    threads_per_multiprocessor: int
    registers_per_multiprocessor: int
    l2_bytes: int
    clock_khz: int  # the highest
    memory_clock_khz: int = 3_201_000
    memory_bus_bits: int = 6016

    @property
    def peak_bandwidth(self) -> float:
        """Bytes a second, in theory."""
        return 2e3 * self.memory_clock_khz * self.memory_bus_bits / 8


H200 = DeviceFacts(90, 132, 227 << 10, 228 << 10, 2048, 65536, 50 << 20, 1_980_000)


@dataclass(slots=True)
class Kernel:
    """A loaded kernel of one device. `function` is the driver's handle."""

    source: Source
    device: int
    function: int
    shared: int = _USUAL_SHARED  # what blocks may have so far
    lock: Any = field(default_factory=Lock)

    def launcher(
        self,
        grid: int,
        block: int,
        shared: int,
        arguments: Sequence[Argument],
        follows: bool = False,
        tables: Sequence[int] = (),
    ) -> Launcher:
        """`run(stream, *addresses)`; `arguments` are the numbers after the pointers.

        `follows`: the kernel itself waits for the launch before it, so it may start early (two_passes.h).
        `tables`: the addresses of the tables, which follow those of tensors.
        """
        from .... import _native

        driver = _working_driver()
        with self.lock:
            if shared > self.shared:
                status = driver.cuFuncSetAttribute(self.function, _MAX_DYNAMIC_SHARED, shared)
                _check(driver, status, f"{self.source.entry} gets no {shared} bytes of shared memory")
                self.shared = shared
        enqueue = ctypes.cast(driver.cuLaunchKernelEx, ctypes.c_void_p).value or 0
        parameters = bytes(packed(self.source, arguments, tables))
        early = follows and self.early
        return _native.Launch(
            enqueue, self.function, grid, block, shared, early, parameters, self._failed
        ).run

    def _failed(self, status: int, repeated: bool) -> None:
        """Returns if the launch is to be repeated: its thread had not used the device yet."""
        if status != _INVALID_CONTEXT or repeated:
            name = self.source.entry
            raise RuntimeError(f"{name}: the CUDA driver refuses the launch with error {status}")
        bind(self.device)

    @property
    def early(self) -> bool:
        """Whether a launch may start before the one before it has ended."""
        return device_facts(self.device).capability >= 90 and driver_version() >= _EARLY_DRIVER


@cache
def device_facts(device: int) -> DeviceFacts:
    driver, handle = _working_driver(), _device(device)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        status = driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        _check(driver, status, f"GPU {device} does not tell its attribute {number}")
        return value.value

    numbers = (16, 97, 81, 39, 82, 38, 13, 36, 37)  # CUdevice_attribute, in the order of the fields
    return DeviceFacts(10 * attribute(75) + attribute(76), *map(attribute, numbers))


def load_kernel(source: Source, device: int, code: bytes) -> Kernel:
    """The kernel of compiled code on a device. Works while a CUDA graph is captured, too."""
    driver = _working_driver()
    bind(device)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    mode = ctypes.c_int(_RELAXED)  # loading allocates, which other modes forbid during a capture
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        status = driver.cuModuleLoadData(ctypes.byref(module), code)
        _check(driver, status, f"GPU {device} does not load the kernel {source.entry}")
        status = driver.cuModuleGetFunction(ctypes.byref(function), module, source.entry.encode())
        _check(driver, status, f"the compiled program has no kernel {source.entry}")
    finally:
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    assert function.value is not None
    return Kernel(source, device, function.value)


def bind(device: int) -> None:
    """Make the device's primary context, which PyTorch uses, the context of this thread."""
    driver = _working_driver()
    _check(driver, driver.cuCtxSetCurrent(_context(device)), f"GPU {device} has no context")


def driver_version() -> int:
    """Such as 12080 for CUDA 12.8; 0 without a driver."""
    driver, version = _driver(), ctypes.c_int()
    if driver is not None:
        driver.cuDriverGetVersion(ctypes.byref(version))
    return version.value


@cache
def _context(device: int) -> int:
    driver, context = _working_driver(), ctypes.c_void_p()
    status = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), _device(device))
    _check(driver, status, f"GPU {device} has no context")
    assert context.value is not None
    return context.value


@cache
def _device(device: int) -> int:
    driver, handle = _working_driver(), ctypes.c_int()
    _check(driver, driver.cuInit(0), "the CUDA driver does not start")
    _check(driver, driver.cuDeviceGet(ctypes.byref(handle), device), f"there is no GPU {device}")
    return handle.value


def _check(driver: Any, status: int, what: str) -> None:
    if status:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(name))
        raise NoCompiler(f"{what}: {(name.value or b'error').decode()} ({status}).")


def _working_driver() -> Any:
    driver = _driver()
    if driver is None:
        raise NoCompiler("the CUDA driver is not found; libcuda.so.1 of CUDA 11.8 or newer must be there.")
    return driver


@cache
def _driver() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
        library.cuLaunchKernelEx  # noqa: B018  (looks it up)
        library.cuFuncSetAttribute.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
        library.cuCtxSetCurrent.argtypes = (ctypes.c_void_p,)
        library.cuModuleLoadData.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
        library.cuModuleGetFunction.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    except (OSError, AttributeError):  # no driver, or one before CUDA 11.8
        return None
    return library
