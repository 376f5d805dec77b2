"""The compiled kernels have the reference's bits: every instruction set, thread count, layout and dtype."""

from __future__ import annotations

import numpy as np
import pytest

import pooltide
from pooltide import _native
from regions import NAMES, RegionCall, bits, draw

THREADS = (1, 2, 7)


def compare(call: RegionCall) -> None:
    values, places, total = call.by_reference()
    got, indices = call.forward()
    np.testing.assert_array_equal(bits(got), bits(values), err_msg=f"forward of {call}")
    if places is not None:
        np.testing.assert_array_equal(indices, places, err_msg=f"indices of {call}")
    np.testing.assert_array_equal(bits(call.gradient(indices)), bits(total), err_msg=f"gradient of {call}")


@pytest.fixture(autouse=True)
def usual_settings() -> object:
    threads, name = pooltide.get_num_threads(), _native.instruction_set()
    yield
    pooltide.set_num_threads(threads)
    _native.use_instruction_set(name)


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_random_calls_have_the_bits_of_the_reference(name: str, hostile: bool) -> None:
    sets = _native.instruction_sets()
    for seed in range(27):
        _native.use_instruction_set(sets[seed % len(sets)])
        pooltide.set_num_threads(THREADS[seed // len(sets) % 3])
        compare(draw(seed, name, hostile))


def test_the_call_reaches_the_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pooltide.kernels.regions.reference.run", None)
    call = draw(2, "roi_align")
    assert call.gradient(call.forward()[1]).shape == call.x.shape


@pytest.mark.parametrize("name", NAMES)
def test_planes_are_cut_into_bands_without_a_trace(name: str) -> None:
    """A plane of more cells than a band of sums holds; threads share its rows, and half types their sums."""
    rng = np.random.default_rng(5)
    for dtype in (np.float32, np.float16):
        x = rng.standard_normal((1, 18 if name.startswith("ps_") else 3, 97, 131)).astype(dtype)
        low = rng.uniform(-9, 90, (23, 2))
        corners = np.concatenate([low, low + rng.uniform(0, 60, low.shape)], 1)
        boxes = np.concatenate([np.zeros((23, 1)), corners], 1).astype(np.float32)
        call = RegionCall(name, x, boxes, (3, 2), ratio=2)
        found = []
        for threads in (1, 2, 16):
            pooltide.set_num_threads(threads)
            values, indices = call.forward()
            found.append((bits(values).tobytes(), bits(call.gradient(indices)).tobytes()))
        assert len(set(found)) == 1
        compare(call)


def test_thousands_of_regions_on_one_cell() -> None:
    boxes = np.tile(np.array([[0, 2.0, 2.0, 2.5, 2.5]], np.float32), (3000, 1))
    x = np.random.default_rng(1).standard_normal((1, 2, 5, 5)).astype(np.float16)
    for name in ("roi_align", "roi_pool"):
        compare(RegionCall(name, x, boxes, (1, 1)))


@pytest.mark.parametrize("name", NAMES)
def test_results_in_a_strided_out_and_in_place_of_nothing_else(name: str) -> None:
    for seed in range(12):
        call = draw(seed, name)
        values, indices = call.forward()
        total = call.gradient(indices)
        wide = np.full((*call.x.shape[:3], 2 * call.x.shape[3] + 3), 7, call.x.dtype)
        out = wide[..., 1 : 1 + 2 * call.x.shape[3] : 2]
        assert call.gradient(indices, out=out) is out
        np.testing.assert_array_equal(bits(out), bits(total))
        out[...] = 7
        assert (wide == 7).all(), "a cell outside was written"
        if name != "roi_pool":
            flat = np.full(values.size + 8, 7, call.x.dtype)
            inner = flat[4 : 4 + values.size].reshape(values.shape)
            call.forward(out=inner)
            np.testing.assert_array_equal(bits(inner), bits(values))
            flat[4 : 4 + values.size] = 7
            assert (flat == 7).all(), "a cell outside was written"


def test_boxes_as_a_list_and_in_float32() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 8, 9)).astype(np.float16)
    parts = [rng.uniform(0, 8, (n, 4)).astype(np.float32) for n in (3, 2)]
    images = np.concatenate([np.full((3, 1), 0), np.full((2, 1), 1)])
    rows = np.concatenate([images, np.concatenate(parts)], 1).astype(np.float32)
    expected = pooltide.roi_align(x, rows, 2)
    np.testing.assert_array_equal(pooltide.roi_align(x, parts, 2), expected)
    np.testing.assert_array_equal(pooltide.roi_align(x, parts[:1], (2, 2)), expected[:3])
    assert pooltide.roi_align(x, [], 2).shape == (0, 3, 2, 2)


def test_int64_indices_and_empty_arrays() -> None:
    call = draw(11, "roi_pool")
    _, indices = call.forward()
    assert indices is not None
    np.testing.assert_array_equal(call.gradient(indices.astype(np.int64)), call.gradient(indices))
    for shape, number in (((0, 3, 2, 2), 0), ((2, 0, 2, 2), 3), ((2, 3, 2, 2), 0)):
        for name in ("roi_align", "roi_pool"):
            empty = RegionCall(name, np.ones(shape, np.float32), np.zeros((number, 5), np.float32), (1, 2))
            values, places = empty.forward()
            assert values.shape == (number, shape[1], 1, 2)
            assert (empty.gradient(places) == 0).all()


def test_samples_outside_count_in_the_divisor_only_and_read_nothing() -> None:
    x = np.ones((1, 1, 3, 3), np.float32)
    x[0, 0, 0, 0] = np.nan
    boxes = np.array([[0, 2, 2, 6, 6]], np.float32)
    # Samples at 3 and 5 on each axis: one of the four is inside.
    assert pooltide.roi_align(x, boxes, 1, sampling_ratio=2).tolist() == [[[[0.25]]]]


def test_bins_without_samples_and_cells() -> None:
    x, boxes = (
        np.ones((1, 1, 3, 3), np.float32),
        np.array([[0, 1, 1, 1, 1], [0, np.nan, 0, 2, 2]], np.float32),
    )
    assert pooltide.roi_align(x, boxes, 1, aligned=True).ravel().tolist() == [0, 0]
    assert np.isnan(pooltide.ps_roi_align(x, boxes, 1)).all()
    outside = boxes + np.array([0, 9, 9, 9, 9], np.float32)
    values, indices = pooltide.roi_pool(x, outside, 1, return_indices=True)
    assert values.ravel().tolist() == [0, 0]
    assert indices.ravel().tolist() == [-1, -1]
