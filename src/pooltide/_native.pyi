"""The compiled kernels (native/)."""

from types import NotImplementedType
from typing import Any

from numpy.typing import NDArray

Memory = NDArray[Any] | int

class Prepared:
    def __init__(
        self,
        kind: int,
        store: int,
        quotient: int,
        divisor: float,
        channels_last: bool,
        index_bytes: int,
        batch: int,
        channels: int,
        *tables: NDArray[Any],
    ) -> None: ...
    def run(
        self, grad_output: Memory, indices: Memory | None, out: Memory, threads: int, /
    ) -> tuple[int, int, int] | NotImplementedType | None: ...

class Forward:
    def __init__(
        self,
        largest: bool,
        indexed: bool,
        offsets: bool,
        store: int,
        quotient: int,
        divisor: float,
        channels_last: bool,
        batch: int,
        channels: int,
        cells: tuple[int, int, int],
        steps: tuple[int, int, int],
        *tables: NDArray[Any],
    ) -> None: ...
    def run(
        self, input: Memory, out: Memory, indices: Memory | None, threads: int, /
    ) -> NotImplementedType | None: ...

def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str, /) -> None: ...
def use_huge_pages(address: int, nbytes: int, /) -> bool: ...
