"""Reads tensors from files in pieces, and writes the header of `.npy` files.

`open_tensor` reads the header of a `.npy` file, with strict checks, or takes dtype and shape of a raw `.bin`
file from the caller. Pickles are never loaded.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operators.dtypes import DTYPES, DType, dtype_of
from ..writing import why
from .plain_files import Source, opened
from .saved_tensor import SavedError, part_of, read_saved

Array = NDArray[Any]
_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 10_000
_PLAIN = re.compile(r"[<>=|]?[fiub][0-9]{1,2}")
ENDINGS = (".npy", ".bin", ".pt")
CHANGED = "the file was changed after it was made; its sha256 is not the manifest's"
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


class TensorFileError(ValueError):
    """A file that can't be read as a tensor; the text says which file and why."""


class GoldenError(TensorFileError):
    """A golden file that can't be read or was changed: nothing can be compared with it."""


@dataclass(frozen=True, slots=True)
class TensorFile:
    path: Source
    shape: tuple[int, ...]
    dtype: DType
    stored: np.dtype[Any]  # with the byte order of the file
    offset: int
    fortran: bool = False
    sha256: str = ""  # that the whole file must have; "": any
    array: Array | None = None  # the elements, of any strides, of a file that can't be read in pieces

    @property
    def count(self) -> int:
        return prod(self.shape)

    def pieces(self, cells: int) -> Iterator[Array]:
        """The elements in the order of the file, `cells` at a time, in native byte order.

        GoldenError, after the last piece: the file does not have its sha256.
        """
        if self.array is not None:
            yield from (part_of(self.array, at, cells) for at in range(0, self.count, cells))
            return
        with _opened(self.path) as file:
            digest = hashlib.sha256(file.read(self.offset)) if self.sha256 else None
            file.seek(self.offset)
            left = self.count
            while left:
                piece = np.empty(min(cells, left), self.stored)
                if file.readinto(words := piece.view(np.uint8).data) != piece.nbytes:
                    raise TensorFileError(f"{self.path}: the file grew shorter while it was read")
                if digest is not None:
                    digest.update(words)
                left -= piece.size
                yield piece.astype(self.dtype.numpy, copy=False)
        if digest is not None and digest.hexdigest() != self.sha256:
            raise GoldenError(f"{self.path}: {CHANGED}")

    def part(self, start: int, cells: int) -> Array:
        """`cells` elements from `start`, in the order of the file."""
        if self.array is not None:
            return part_of(self.array, start, cells)
        at = TensorFile(
            self.path, (cells,), self.dtype, self.stored, self.offset + start * self.stored.itemsize
        )
        return next(at.pieces(cells), np.empty(0, self.dtype.numpy))


def open_tensor(path: Source, dtype: DType | None = None, shape: tuple[int, ...] | None = None) -> TensorFile:
    """Open a `.npy` file, or a raw `.bin` file of `dtype`; it must have `dtype` and `shape` if given."""
    if path.suffix == ".npy":
        tensor = _npy(path)
    elif path.suffix == ".bin":
        tensor = _raw(path, dtype, shape)
    elif path.suffix == ".pt" and isinstance(path, Path):
        tensor = _saved_by_pytorch(path, shape)
    else:
        raise TensorFileError(f"{path}: the name ends in {path.suffix!r}; it must end in .npy, .bin or .pt")
    if dtype is not None and tensor.dtype != dtype:
        raise TensorFileError(
            f"{path}: the file has dtype {tensor.dtype}; it must be {dtype}{words_hint(tensor.stored)}"
        )
    if shape is not None and tensor.shape != shape:
        raise TensorFileError(f"{path}: the file has shape {tensor.shape}; it must be {shape}")
    return tensor


def words_hint(stored: np.dtype[Any]) -> str:
    """What to do with integers of 16 bits, which are often the bits of bfloat16; "" for other dtypes."""
    if stored.kind not in "iu" or stored.itemsize != 2:
        return ""
    return "; bits of bfloat16 must have NumPy's dtype V2: save x.view('V2'), or the raw bytes as .bin"


def _raw(path: Source, dtype: DType | None, shape: tuple[int, ...] | None) -> TensorFile:
    if dtype is None:
        raise TensorFileError(f"{path}: a .bin file has no dtype; give it with --dtype")
    size = _size(path)
    what = f"shape {shape} of {dtype}" if shape is not None else f"whole elements of {dtype}"
    shape = shape if shape is not None else (size // dtype.itemsize,)
    if size != (must := prod(shape) * dtype.itemsize):
        raise TensorFileError(f"{path}: the file has {size} bytes; {what} must be {must}")
    return TensorFile(path, shape, dtype, dtype.numpy, 0)


def _saved_by_pytorch(path: Path, shape: tuple[int, ...] | None) -> TensorFile:
    with _opened(path):  # it is there, and a plain file
        pass
    try:
        array = read_saved(path, shape)
    except SavedError as error:
        raise TensorFileError(f"{path}: {error}") from None
    dtype = dtype_of(array.dtype)
    assert dtype is not None
    return TensorFile(path, array.shape, dtype, array.dtype, 0, array=array)


def _npy(path: Source) -> TensorFile:
    with _opened(path) as file:
        start = file.read(8)
        if start[:6] != _MAGIC:
            kind = (
                "looks like a pickle, which is never loaded" if start[:2] in _PICKLES else "is no .npy file"
            )
            raise TensorFileError(f"{path}: the file begins with {start[:6]!r} and {kind}")
        if len(start) < 8 or start[6] not in (1, 2, 3):
            raise TensorFileError(f"{path}: the .npy version is {start[6:]!r}; it must be 1, 2 or 3")
        width = 2 if start[6] == 1 else 4
        length = file.read(width)
        if len(length) < width:
            raise TensorFileError(f"{path}: the file ends inside its header")
        size = int(struct.unpack("<H" if width == 2 else "<I", length)[0])
        if size > _LONGEST_HEADER:
            raise TensorFileError(f"{path}: the header has {size} bytes; at most {_LONGEST_HEADER} are read")
        text = file.read(size)
        if len(text) < size:
            raise TensorFileError(f"{path}: the file ends inside its header")
        shape, stored, fortran = _header(path, text)
        offset = file.tell()
    dtype = DTYPES["BFLOAT16"] if stored.kind == "V" else dtype_of(stored.newbyteorder("="))
    if dtype is None:
        raise TensorFileError(f"{path}: the file has dtype {stored}; it must be one of {', '.join(DTYPES)}")
    must, got = prod(shape) * stored.itemsize, _size(path) - offset
    if must != got:
        raise TensorFileError(f"{path}: shape {shape} of {dtype} takes {must} bytes; the file has {got}")
    return TensorFile(path, shape, dtype, dtype.numpy if stored.kind == "V" else stored, offset, fortran)


def _header(path: Source, text: bytes) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    try:
        header = ast.literal_eval(text.decode("utf-8").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise TensorFileError(f"{path}: the header is no Python literal") from None
    if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
        raise TensorFileError(f"{path}: the header must have descr, fortran_order and shape, no more")
    descr, fortran, shape = header["descr"], header["fortran_order"], header["shape"]
    if isinstance(descr, str) and "O" in descr:
        raise TensorFileError(f"{path}: the file holds Python objects in a pickle, which is never loaded")
    if descr in ("|V2", "<V2"):  # what NumPy writes for ml_dtypes.bfloat16
        stored: np.dtype[Any] = np.dtype("V2")
    elif isinstance(descr, str) and _PLAIN.fullmatch(descr):
        try:
            stored = np.dtype(descr)
        except TypeError:
            raise TensorFileError(f"{path}: descr is {descr!r}, which is no dtype") from None
    else:
        raise TensorFileError(f"{path}: descr is {str(descr)[:60]!r}; it must be a plain number's")
    sizes = shape if isinstance(shape, tuple) else (-1,)
    if len(sizes) > 32 or any(type(n) is not int or not 0 <= n < 2**63 for n in sizes):
        raise TensorFileError(f"{path}: shape is {str(shape)[:60]}; it must be a tuple of sizes")
    if type(fortran) is not bool:
        raise TensorFileError(f"{path}: fortran_order is {str(fortran)[:60]}; it must be True or False")
    return sizes, stored, fortran


@contextmanager
def _opened(path: Source) -> Iterator[BufferedReader]:
    try:
        with opened(path) as file:
            yield file
    except OSError as error:
        raise TensorFileError(f"{path}: can't be read: {why(error)}") from None


def _size(path: Source) -> int:
    with _opened(path) as file:
        return file.seek(0, os.SEEK_END)


def raw_bytes(array: Array) -> memoryview:
    """The bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def npy_header(array: Array) -> bytes:
    """The header of the `.npy` file of a C-contiguous array."""
    descr = "|V2" if array.dtype.kind == "V" else array.dtype.str
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {array.shape!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"".join([_MAGIC, b"\x01\x00", struct.pack("<H", len(header)), header])
