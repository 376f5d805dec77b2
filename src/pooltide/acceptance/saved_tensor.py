"""Reads a tensor that torch.save wrote, as PyTorch reads weights: no code in the file is run.

The array that is returned has the strides of the tensor, so an expanded tensor takes no more memory than its
file.
"""

from __future__ import annotations

import warnings
import zipfile
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..operators.dtypes import DTYPES

if TYPE_CHECKING:
    import torch

_ARCHIVE = b"PK\x03\x04"


class SavedError(ValueError):
    """Why a file holds no tensor that can be compared."""


def read_saved(path: Path, shape: tuple[int, ...] | None) -> NDArray[Any]:
    """The values of the tensor in a file. Only a tensor of the `shape` may repeat its values.

    SavedError: the file can't be read, or holds something else.
    """
    try:
        import torch
    except ImportError:
        raise SavedError("a .pt file needs PyTorch, which is not installed") from None
    try:
        _check_archive(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
        return _values(content, shape)
    except SavedError:
        raise
    except Exception as error:  # PyTorch raises whatever its parts raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:100]
        size = path.stat().st_size
        raise SavedError(f"PyTorch can't read the file of {size} bytes: {reason}") from None


def _check_archive(path: Path) -> None:
    """Raise SavedError for a damaged archive, or one that grows when it is unpacked: torch.save compresses
    nothing."""
    with path.open("rb") as file:
        if file.read(len(_ARCHIVE)) != _ARCHIVE:
            return  # the older form, or no file of PyTorch
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            unpacked, size = sum(record.file_size for record in records), path.stat().st_size
            if unpacked > size or any(record.compress_type != zipfile.ZIP_STORED for record in records):
                text = f"the archive of {size} bytes unpacks to {unpacked}"
                raise SavedError(f"{text}; its records must not be compressed")
            damaged = archive.testzip()  # torch.load does not look at the checksums
    if damaged is not None:
        raise SavedError(f"the record {damaged} of the archive was changed: its CRC-32 is another")


def _values(content: Any, shape: tuple[int, ...] | None) -> NDArray[Any]:
    import torch

    plain = type(content) in (torch.Tensor, torch.nn.Parameter) and not content.is_nested
    if not plain or content.layout != torch.strided or content.is_quantized:
        raise SavedError(f"the file holds a {_kind(content)}; it must hold a dense tensor")
    if content.device.type != "cpu":
        raise SavedError(f"the file holds a tensor of the device {content.device}; it must have values")
    tensor: torch.Tensor = content.detach().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name.upper() not in DTYPES:
        raise SavedError(f"the file has dtype {name}; it must be one of {', '.join(DTYPES)}")
    values, stored = prod(tensor.shape) * tensor.element_size(), tensor.untyped_storage().nbytes()
    if values > stored and tuple(tensor.shape) != shape:
        text = f"the file holds an expanded tensor, {values} bytes of values in {stored}"
        raise SavedError(f"{text}; save tensor.contiguous()")
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(DTYPES["BFLOAT16"].numpy)
    return tensor.numpy()


def _kind(content: Any) -> str:
    import torch

    if not isinstance(content, torch.Tensor):
        return type(content).__name__
    if content.is_nested:
        return "nested tensor"
    return "quantized tensor" if content.is_quantized else f"tensor of the layout {str(content.layout)[6:]}"


def part_of(array: NDArray[Any], start: int, cells: int) -> NDArray[Any]:
    """`cells` elements of an array from `start`, in C order. The whole array is never copied."""
    if array.flags.c_contiguous:
        return array.reshape(-1)[start : start + cells]
    return np.asarray(array.flat[start : start + cells])
