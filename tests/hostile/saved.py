"""Files of torch.save that no honest program would hand in: other kinds of tensors, huge ones, damaged ones."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

from .mutation import mutated

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

SHAPE = (1, 2, 5, 7)


def _kinds() -> dict[str, Callable[[], Any]]:
    x = torch.ones(SHAPE)
    half = torch.ones(SHAPE, dtype=torch.float16)
    return {
        "good": lambda: x,
        "parameter": lambda: torch.nn.Parameter(x),
        "half": lambda: half,
        "bfloat16": lambda: x.bfloat16(),
        "float8": lambda: x.to(torch.float8_e4m3fn),
        "bool": lambda: x.bool(),
        "uint16": lambda: x.to(torch.uint16),
        "bits": lambda: x.to(torch.uint8).view(torch.bits8),
        "complex": lambda: x.to(torch.complex64),
        "conjugate": lambda: x.to(torch.complex64).conj(),
        "negative": lambda: x.to(torch.complex64).conj().imag,
        "meta": lambda: torch.ones(SHAPE, device="meta"),
        "nested": lambda: torch.nested.nested_tensor([x, x[..., :3]]),
        "jagged": lambda: torch.nested.nested_tensor([x[0, 0], x[0, 0, :2]], layout=torch.jagged),
        "sparse": lambda: x.to_sparse(),
        "quantized": lambda: torch.quantize_per_tensor(x, 1.0, 0, torch.qint8),
        "expanded": lambda: torch.ones(1).expand(SHAPE),
        "huge": lambda: torch.ones(1).expand(1 << 20, 1 << 10),
        "endless": lambda: torch.ones(1).expand(1 << 31, 1 << 31),
        "overlapping": lambda: torch.arange(100.0).as_strided(SHAPE, (0, 1, 1, 1)),
        "transposed": lambda: torch.ones(7, 5, 2, 1).permute(3, 2, 1, 0),
        "empty": lambda: torch.ones(1, 2, 0, 7),
        "scalar": lambda: torch.tensor(1.0),
        "part": lambda: torch.ones(1000)[:70].view(SHAPE),
        "dict": lambda: {"output": x},
        "list": lambda: [x] * 3,
        "number": lambda: 5,
        "deep": lambda: _deep(900),
    }


def _deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


SAVED = {} if torch is None else _kinds()


def content_of(kind: str, *, legacy: bool = False) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(SAVED[kind](), file, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


def saved(rng: Random) -> bytes:
    kind = rng.choice(list(SAVED))
    try:
        content = content_of(kind, legacy=rng.random() < 0.15)
    except Exception:  # this release of PyTorch can't save such a tensor
        content = content_of("good")
    match rng.randrange(5):
        case 0:
            return packed_again(content, rng)
        case 1:
            return mutated(content, rng)
        case _:
            return content


def packed_again(content: bytes, rng: Random) -> bytes:
    """The same records, some damaged, perhaps compressed; the sums of the archive are right."""
    file = io.BytesIO()
    try:
        with (
            zipfile.ZipFile(io.BytesIO(content)) as old,
            zipfile.ZipFile(file, "w", rng.choice((0, 8))) as new,
        ):
            for name in old.namelist():
                record = old.read(name)
                if rng.random() < 0.3:
                    record = rng.choice((mutated(record, rng), b"", bytes(1 << 22), record * 2))
                if rng.random() < 0.95:
                    new.writestr(name, record)
    except zipfile.BadZipFile:
        return content
    return file.getvalue()
