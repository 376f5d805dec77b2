"""The text of a CUDA program, and the layout of the kernel's one argument.

The .cu and .h files of the rooms beside this module are the kernels; all have different names. A kernel takes
one struct by value; it is written here from `Source.parameters`, so that its layout stands in one place:

    #define …                    Source.defines
    #include "device.h"
    struct Parameters { … };     Source.parameters
    #include "FILE"              defines `extern "C" __global__ void ENTRY(const Parameters p)`
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_TYPES: dict[str, Any] = {
    "int": ctypes.c_int32,
    "unsigned": ctypes.c_uint32,
    "long long": ctypes.c_int64,
    "unsigned long long": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    # of device.h
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
    "Divider": ctypes.c_uint32 * 3,
    "Axis": ctypes.c_int32 * 6,
}
Argument = float | tuple[int, ...]  # a tuple fills a struct


@dataclass(frozen=True, slots=True)
class Source:
    """One specialised kernel. `parameters` are (C type, name) pairs; pointers stand before numbers."""

    file: str
    entry: str
    parameters: tuple[tuple[str, str], ...]
    defines: tuple[tuple[str, str | int], ...] = ()

    @property
    def pointers(self) -> int:
        """How many parameters are pointers."""
        return _struct(self.parameters)[1]


def program(source: Source) -> str:
    """The whole text that a compiler gets."""
    defines = "".join(f"#define {name} {value}\n" for name, value in source.defines)
    fields = "".join(f"  {kind} {name};\n" for kind, name in source.parameters)
    size = ctypes.sizeof(layout(source))
    return (
        f'{defines}#include "device.h"\n'
        f"struct Parameters {{\n{fields}}};\n"
        f'static_assert(sizeof(Parameters) == {size}, "Python packs the parameters otherwise");\n'
        f'#include "{source.file}"\n'
    )


def layout(source: Source) -> type[ctypes.Structure]:
    """The struct `Parameters` as ctypes lays it out."""
    return _struct(source.parameters)[0]


@cache
def _struct(parameters: tuple[tuple[str, str], ...]) -> tuple[type[ctypes.Structure], int]:
    """The struct, and how many of its fields are pointers."""
    pointers = sum(kind.endswith("*") for kind, _ in parameters)
    assert all(kind.endswith("*") for kind, _ in parameters[:pointers]), "a number stands before a pointer"
    kinds = [ctypes.c_uint64] * pointers + [_TYPES[kind] for kind, _ in parameters[pointers:]]
    fields = [(name, kind) for (_, name), kind in zip(parameters, kinds, strict=True)]
    return type("Parameters", (ctypes.Structure,), {"_fields_": fields}), pointers


def packed(source: Source, arguments: Sequence[Argument], tables: Sequence[int] = ()) -> ctypes.Structure:
    """The struct with these numbers after the pointers, which are null, except the last: of the tables."""
    made_as, pointers = _struct(source.parameters)
    numbers = source.parameters[pointers:]
    if len(numbers) != len(arguments):
        raise ValueError(f"{source.entry}: {len(arguments)} arguments are given; it must be {len(numbers)}.")
    made = made_as(*(0,) * (pointers - len(tables)), *tables, *arguments)
    for (kind, name), value in zip(numbers, arguments, strict=True):
        found = getattr(made, name)
        kept = tuple(found) if isinstance(value, tuple) else found
        if kept != value and not isinstance(value, float):  # ctypes drops high bits silently
            raise ValueError(f"{source.entry}: {name} is {value}; it must fit {kind}.")
    return made


@cache
def headers() -> dict[str, str]:
    """The texts of all rooms by name. NVRTC gets them as headers, so no compiler searches a directory."""
    rooms = [entry for entry in files(__package__).iterdir() if entry.is_dir()]
    found = [entry for room in rooms for entry in room.iterdir() if entry.name.endswith((".cu", ".h"))]
    return {entry.name: entry.read_text("utf-8") for entry in sorted(found, key=lambda entry: entry.name)}


@cache
def header_texts() -> str:
    """All texts of the kernels as one, for keys of compiled code."""
    return "\n".join(f"{name}\n{text}" for name, text in headers().items())
