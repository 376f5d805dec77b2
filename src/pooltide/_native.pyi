"""The compiled kernels (native/)."""

from collections.abc import Callable
from types import ModuleType, NotImplementedType
from typing import Any

from numpy.typing import NDArray

Memory = NDArray[Any] | int
OptionalMemory = Memory | None

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
        cells: tuple[int, int, int],
        windows: tuple[int, int, int],
        dilation: tuple[int, int, int],
        *tables: NDArray[Any],
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def kernels(self, ignore_speed: bool, /) -> list[tuple[str, str | None]]: ...
    def run(
        self,
        grad: OptionalMemory,
        input: OptionalMemory,
        indices: OptionalMemory,
        out: Memory,
        threads: int,
        /,
    ) -> tuple[int, int, int] | NotImplementedType | None: ...
    def run_forced(
        self,
        grad_output: OptionalMemory,
        input: OptionalMemory,
        indices: OptionalMemory,
        out: Memory,
        threads: int,
        kernel: str,
        stream: int,
        chunk: int,
        tight: bool,
        /,
    ) -> tuple[int, int, int] | NotImplementedType | None: ...

class Shortcuts:
    def __init__(
        self,
        exchange: object,
        tensor: type,
        modes: Callable[[], int],
        pre_dispatch: Callable[[], bool],
        transforms: Callable[[], bool],
        grad_enabled: Callable[[], bool],
        forward_ad: ModuleType,
        empty_like: Callable[[Any], Any],
        deterministic: Callable[[], bool],
        is_neg: Callable[[Any], bool],
        is_cow: Callable[[Any], bool],
        storage: Callable[[Any], Any],
        storage_offset: Callable[[Any], Any],
        is_inference: Callable[[Any], bool],
        mark_written: Callable[[Any], None],
        threads: Callable[[], int],
        calls: dict[Any, Any],
        environment: dict[bytes, bytes],
        backend: bytes,
    ) -> None: ...
    # The arguments of both: grad_output, input, indices, the tuple of attributes, out.
    def find(self, function: str, result_layout: bool | str | None, /, *arguments: Any) -> Any: ...
    def key(self, function: str, result_layout: bool | str | None, /, *arguments: Any) -> bytes | None: ...

class Launch:
    def __init__(
        self,
        driver: int,
        function: int,
        grid: int,
        block: int,
        shared: int,
        early: bool,
        arguments: bytes,
        failed: Callable[[int, bool], None],
    ) -> None: ...
    def run(self, stream: int, /, *addresses: int) -> None: ...

class Launches:
    def begin(
        self,
        device_of: Callable[[], int],
        stream_of: Callable[[int], int],
        new_counts: Callable[[Any], Any],
        device: int,
        gradient: bool,
        itemsize: int,
        index_bytes: int,
        errors: int,
        /,
    ) -> None: ...
    def use(
        self,
        first: Callable[..., None],
        second: Callable[..., None] | None,
        counts: Any,
        tables: Any,
        aligned: bool,
        on_default: bool,
        on_others: bool,
        /,
    ) -> None: ...
    def launch(
        self,
        first: Callable[..., None],
        second: Callable[..., None] | None,
        counts: Any,
        stream: int,
        source: int,
        indices: int,
        out: int,
        faults: int,
        /,
    ) -> None: ...
    def run(
        self,
        grad_output: int | None,
        input: int | None,
        indices: int | None,
        out: int,
        threads: int = ...,
        faults: int | None = ...,
        /,
    ) -> NotImplementedType | None: ...

def unpool(
    source: Memory,
    indices: Memory,
    out: Memory,
    planes: int,
    windows: int,
    cells: int,
    channels: int,
    itemsize: int,
    index_bytes: int,
    gather: bool,
    threads: int,
    /,
) -> tuple[int, int, int] | NotImplementedType | None: ...
def regions(
    source: Memory,
    boxes: Memory,
    indices: OptionalMemory,
    out: Memory,
    sampled: bool,
    position_sensitive: bool,
    gradient: bool,
    store: int,
    channels_last: bool,
    index_bytes: int,
    image: tuple[int, int, int, int],
    regions: int,
    bins: tuple[int, int],
    scale: float,
    ratio: int,
    aligned: bool,
    threads: int,
    /,
) -> tuple[int, int, int] | NotImplementedType | None: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str, /) -> None: ...
def use_huge_pages(address: int, nbytes: int, /) -> bool: ...
def use_openmp(parallel: int, number: int, /) -> None: ...
def aten_symbols() -> tuple[str, ...]: ...
def aten_setup(
    addresses: tuple[int, ...], keys_at: int, plain_keys: tuple[int, ...], *objects: object
) -> None: ...
def aten_kernel(
    name: str,
    key: str,
    role: int,
    arguments: str,
    results: int,
    number: int,
    python: Callable[..., Any],
    recorded: int,
    keys: int,
    /,
) -> None: ...
def aten_activate(forwards: bool, gradients: bool, /) -> None: ...
def aten_want_offsets(address: int, /) -> int: ...
def aten_watch(function: Callable[[str], Any] | None, /) -> None: ...
