"""Takes calls in the spelling of pyACL, CANN's Python interface: `acl.init()`, `acl.rt.set_device(0)`.

Passes them to the functions with C names: `acl.rt` has those that begin with aclrt, and `acl.util` converts
between NumPy arrays, bytes and addresses of the host. As in pyACL, results come first and the status last.
A stream, an event or a context is an object here, where pyACL has an int.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.call import is_int
from ..operators.dtypes import RUNTIME
from .addresses import is_guarded
from .error_reports import describe
from .memory_blocks import host_bytes
from .runtime import aclFinalize, aclGetRecentErrMsg, aclInit, aclrtGetSocName

# pyACL's names that are not those of C in small letters.
_OTHER_NAMES = {
    "aclrtSetCurrentContext": "set_context",
    "aclrtGetCurrentContext": "get_context",
    "aclrtUnSubscribeReport": "unsubscribe_report",
}
# The parts of pyACL that are not here, and what a program can do.
_MISSING = dict.fromkeys(("mdl", "op", "media", "himpi", "fv", "tdt", "tbe"), "pooltide has no models") | {
    "prof": "pooltide does not profile"
}
_READ = 1 << 20  # bytes of a test whether an address can be read
Array = NDArray[Any]


class Namespace:
    """Functions by pyACL's names."""

    def __init__(self, name: str, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._name = name
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        text = f"{self._name}.{name} is no function that pooltide has; dir({self._name}) lists them"
        raise AttributeError(text)

    def __repr__(self) -> str:
        return f"<{self._name} of pooltide>"


def _python_name(name: str) -> str:
    """aclrtMemcpyAsync as memcpy_async."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removeprefix("aclrt"))
    return _OTHER_NAMES.get(name, words.lower())


def runtime_namespace(functions: Mapping[str, Any]) -> Namespace:
    """`acl.rt`, of the functions with C names."""
    names = (name for name in RUNTIME["functions"] if name.startswith("aclrt"))
    return Namespace("acl.rt", {_python_name(name): functions[name] for name in names})


def init(config_path: str | None = None) -> int:
    """aclInit; an empty path is no path."""
    return aclInit(config_path or None)


def finalize() -> int:
    """aclFinalize."""
    return aclFinalize()


def get_recent_err_msg() -> str | None:
    """aclGetRecentErrMsg."""
    return aclGetRecentErrMsg()


def get_soc_name() -> str:
    """aclrtGetSocName."""
    return aclrtGetSocName()


def numpy_to_ptr(array: Array) -> int:
    """The address of an array's data; the array must live as long as the address is used."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"numpy_to_ptr: array is {describe(array)}; it must be a NumPy array.")
    if not array.flags.c_contiguous:
        raise ValueError("numpy_to_ptr: array has gaps; it must be contiguous (np.ascontiguousarray).")
    address: int = array.__array_interface__["data"][0]
    return address


def bytes_to_ptr(data: bytes) -> int:
    """The address of the bytes; they must live as long as the address is used."""
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError(f"bytes_to_ptr: data is {describe(data)}; it must be bytes.")
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address


def ptr_to_bytes(ptr: int, size: int) -> bytes:
    """A copy of `size` bytes of the host. Raises ValueError where the host has none."""
    _require_host_memory("ptr_to_bytes", ptr, size)
    return host_bytes(int(ptr), int(size)).tobytes() if size else b""


def ptr_to_numpy(ptr: int, shape: Sequence[int], type: int) -> Array:
    """The memory of the host as an array, not a copy; `type` is NumPy's number of a dtype, such as 11."""
    if not is_int(type) or not 0 <= type <= 24:
        raise ValueError(
            f"ptr_to_numpy: type is {type!r:.40}; it must be NumPy's number of a dtype, 0 to 24."
        )
    dtype = next((np.dtype(kind) for kind in np.typecodes["All"] if np.dtype(kind).num == type), None)
    if dtype is None or dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"ptr_to_numpy: type is {type}; it must be the number of a type of numbers.")
    if not all(is_int(n) and n >= 0 for n in shape):
        raise ValueError(f"ptr_to_numpy: shape is {shape!r:.60}; it must be ints of at least 0.")
    size = prod(shape) * dtype.itemsize
    _require_host_memory("ptr_to_numpy", ptr, size)
    raw = host_bytes(int(ptr), size) if size else np.empty(0, np.uint8)
    return raw.view(dtype).reshape(tuple(shape))


def _require_host_memory(title: str, ptr: Any, size: Any) -> None:
    """Raises ValueError unless the host can read all these bytes."""
    if not is_int(size) or size < 0:
        raise ValueError(f"{title}: size is {size!r:.40}; it must be an int of at least 0.")
    if not is_int(ptr) or not 0 < ptr <= 2**63 - size:
        raise ValueError(f"{title}: ptr is {describe(ptr)}; it must be an address of the host.")
    if is_guarded(int(ptr)):
        raise ValueError(f"{title}: ptr is {ptr:#x}, device memory; call acl.rt.memcpy first.")
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            for at in range(int(ptr), int(ptr + size), _READ):
                memory.seek(at)
                wanted = min(_READ, int(ptr + size) - at)
                if len(memory.read(wanted)) < wanted:
                    raise OSError
    except (OSError, OverflowError):
        text = f"{title}: ptr is {ptr:#x}, where the host has no {size} bytes; it must be their address."
        raise ValueError(text) from None


def start_thread(function: Callable[[Any], object], arguments: Sequence[Any]) -> tuple[int, int]:
    """(the id of a new thread, 0); the thread calls the function with the list of arguments."""
    if not callable(function):
        raise TypeError(f"start_thread: function is {describe(function)}; it must be callable.")
    thread = threading.Thread(target=function, args=(arguments,), daemon=True)
    thread.start()
    assert thread.ident is not None
    _threads[thread.ident] = thread
    return thread.ident, 0


def stop_thread(thread_id: int) -> int:
    """Wait for the end of a thread of start_thread; returns 0."""
    thread = _threads.pop(thread_id, None) if is_int(thread_id) else None
    if thread is None:
        raise ValueError(f"stop_thread: thread_id is {thread_id!r:.40}; it must be one of start_thread.")
    thread.join()
    return 0


_threads: dict[int, threading.Thread] = {}
_UTILITIES: tuple[Callable[..., Any], ...] = (
    *(numpy_to_ptr, bytes_to_ptr, ptr_to_bytes, ptr_to_numpy, start_thread, stop_thread),
)
util = Namespace("acl.util", {function.__name__: function for function in _UTILITIES})


def explain_missing(name: str) -> str:
    """The text of an AttributeError for a name that `acl` does not have."""
    if (why := _MISSING.get(name)) is not None:
        return f"acl.{name} is a part of pyACL that is not here: {why}; docs/torch_npu.md lists what is"
    return f"module 'pooltide.acl' has no attribute {name!r}"
