"""The record of written bytes: the same answers as one flag per byte, in little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from pooltide import acl
from pooltide.acl.written_bytes import Cells, Written, byte_range

SIZE = 120
TO_DEVICE, TO_HOST = acl.ACL_MEMCPY_HOST_TO_DEVICE, acl.ACL_MEMCPY_DEVICE_TO_HOST


def random_cells(rng: np.random.Generator) -> tuple[Cells, Any]:
    """Cells of any strides in SIZE bytes, and where their bytes are."""
    while True:
        shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 4)))
        itemsize = int(rng.choice([1, 2, 4]))
        steps = tuple(int(n) * itemsize for n in rng.integers(-6, 7, len(shape)))
        start = int(rng.integers(SIZE))
        at = np.arange(itemsize) + start
        for n, step in zip(shape[::-1], steps[::-1], strict=True):
            at = np.add.outer(np.arange(n) * step, at).reshape(-1)
        if at.min() >= 0 and at.max() < SIZE:
            return Cells(start, int(at.min()), int(at.max()) + 1, shape, steps, itemsize), at


@pytest.mark.parametrize("seed", range(40))
def test_the_record_answers_as_one_flag_per_byte(seed: int) -> None:
    rng = np.random.default_rng(seed)
    record, flags = Written(), np.zeros(SIZE, np.bool_)
    answers = set()
    for _ in range(60):
        cells, at = random_cells(rng)
        if rng.integers(2):
            low, high = sorted(int(n) for n in rng.choice(SIZE + 1, 2, replace=False))
            cells, at = byte_range(low, high), np.arange(low, high)
        assert cells.dense == (len(set(at.tolist())) == cells.high - cells.low == len(at))
        missing = np.flatnonzero(~flags[at])
        found = record.missing(cells)
        answers.add(found is None)
        assert (found[0] if found else 0) == len(missing)
        assert found is None or found[1] in at[missing]
        assert found is None or not cells.dense or found[1] == at[missing].min()
        if rng.integers(3) == 0:
            flags[at] = True
            if rng.integers(4):
                record.mark(cells)
            else:
                record.mark_bytes(at)
    assert answers == {True, False}


def test_equal_sizes_do_not_make_cells_dense() -> None:
    twice_the_same = Cells(0, 0, 4, (2, 2), (0, 3), 1)  # bytes 0 and 3
    assert not twice_the_same.dense
    record = Written()
    record.mark(twice_the_same)
    assert record.missing(byte_range(0, 4)) == (2, 1)


def test_rows_written_one_after_another_become_one_piece() -> None:
    record = Written()
    for order in (range(0, 1000, 2), range(1, 1000, 2)):
        for row in order:
            record.mark(byte_range(8 * row, 8 * row + 8))
    assert len(record._pieces) == 1
    assert record.missing(byte_range(0, 8000)) is None
    assert record.missing(byte_range(0, 8001)) == (1, 8000)


def test_far_places_of_a_huge_block_take_little_memory() -> None:
    record, far = Written(), 2**40
    tracemalloc.start()
    for start in (0, far // 2, far - 64):
        record.mark(byte_range(start, start + 24))
        record.mark(Cells(start + 32, start + 32, start + 44, (2,), (8,), 4))
    assert record.missing(byte_range(0, far)) == (far - 3 * 32, 24)
    assert record.missing(byte_range(far - 64, far - 40)) is None
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_cells_of_an_interval_need_no_map() -> None:
    record = Written()
    record.mark(byte_range(0, 2**40))
    record.mark(Cells(5, 5, 2**39 + 6, (2,), (2**39,), 1))
    assert record.missing(Cells(5, 5, 2**39 + 6, (2,), (2**39,), 1)) is None
    assert [piece.map for piece in record._pieces] == [None]


@pytest.mark.usefixtures("runtime")
def test_copies_from_and_to_a_large_block_need_no_record_of_its_size(capfd: Any) -> None:
    size = 1 << 31
    address, status = acl.aclrtMalloc(size, 0)
    assert status == 0
    data = np.arange(64, dtype=np.uint8)
    back = np.zeros_like(data)
    tracemalloc.start()
    for at in (address, address + size - 64):
        assert acl.aclrtMemcpy(at, 64, data, 64, TO_DEVICE) == 0
    assert acl.aclrtMemcpy(back, 64, address + size - 64, 64, TO_HOST) == 0
    assert (back == data).all()
    assert acl.aclrtMemcpy(back, 64, address + 32, 64, TO_HOST) == 0
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert (
        "src has 32 bytes that were never written, the first at byte 64 of a block" in capfd.readouterr().err
    )
    assert acl.aclrtFree(address) == 0


@pytest.mark.usefixtures("runtime")
def test_a_call_without_memory_gives_the_status_of_allocations(monkeypatch: Any) -> None:
    def no_room(*_: Any) -> None:
        raise MemoryError("Unable to allocate 2.00 GiB")

    address, _ = acl.aclrtMalloc(64, 0)
    monkeypatch.setattr(Written, "mark", no_room)
    assert acl.aclrtMemcpy(address, 8, np.ones(8, np.uint8), 8, TO_DEVICE) == 200000
    must = "aclrtMemcpy: the machine has too little memory for this call; it must be smaller."
    assert acl.aclGetRecentErrMsg() == f"{must} [200000 ACL_ERROR_BAD_ALLOC]"
