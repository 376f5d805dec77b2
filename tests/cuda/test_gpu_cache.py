"""The cache on a GPU: tables on the device count, and may be forgotten while kernels and graphs use them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

import pooltide  # noqa: E402
import pooltide.torch as pt  # noqa: E402
from pooltide.kernels.calls import CALLS  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU: the GPU is NOT tested"),
]


@pytest.fixture(autouse=True)
def same_limit() -> Iterator[None]:
    before = pooltide.get_cache_bytes()
    yield
    pooltide.set_cache_bytes(before)


def gradient(length: int, outputs: int) -> torch.Tensor:
    """A gradient whose kernel reads tables: its windows are irregular."""
    g = torch.ones(4, 8, outputs, outputs, device="cuda")
    return pt.adaptive_avg_pool2d_backward(g, (4, 8, length, length))


def overwrite() -> None:
    """Forgets all tables, and writes to the memory that is free then."""
    CALLS.clear()
    for size in (512, 1024, 2048, 4096, 1 << 15, 1 << 20):
        [torch.full((size,), 0x7FFFFFFF, dtype=torch.int32, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()


def test_new_lengths_take_no_more_memory_of_the_device() -> None:
    pooltide.set_cache_bytes(300_000)
    for length in range(150, 250):
        gradient(length, 13)
        assert CALLS.nbytes <= 300_000
        if length == 200:
            before = torch.cuda.memory_allocated()
    assert torch.cuda.memory_allocated() - before < 1 << 20


def test_tables_are_forgotten_while_another_stream_reads_them() -> None:
    must = gradient(211, 17)
    side = torch.cuda.Stream()
    for _ in range(5):
        CALLS.clear()
        gradient(211, 17)  # makes the tables, on the default stream
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            found = gradient(211, 17)
        CALLS.clear()
        for _ in range(20):
            torch.full((4096,), 0x7FFFFFFF, dtype=torch.int32, device="cuda")
        side.synchronize()
        assert torch.equal(found, must)


def test_a_graph_is_replayed_after_its_tables_are_forgotten() -> None:
    must = gradient(223, 19)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        gradient(223, 19)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = gradient(223, 19)
    overwrite()
    found.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found, must)
