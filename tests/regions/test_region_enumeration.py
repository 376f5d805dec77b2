"""Enumerated small regions lie near a float64 result, and have torchvision's bits where it is installed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from enumerate_regions import align_call, boxes_of, check_in_float64, check_in_torchvision, settings
from regions import NAMES, align_in_float64, draw
from shares import fast_first

SETTINGS = list(settings())
SHARES = 12


@pytest.mark.parametrize("share", fast_first(range(SHARES), 2))
def test_small_regions_lie_near_float64(share: int) -> None:
    """Some regions of each setting; `python tests/support/enumerate_regions.py` takes all."""
    for number, setting in enumerate(SETTINGS[share::SHARES]):
        every = boxes_of(setting.plane)
        chosen = np.random.default_rng(number).integers(0, len(every), 30)
        check_in_float64(align_call(setting, every[chosen]), gradient=True)


def test_every_region_of_a_small_plane_lies_near_float64() -> None:
    for setting in SETTINGS:
        if setting.plane == (2, 1):
            check_in_float64(align_call(setting, boxes_of(setting.plane), 1), gradient=False)


def test_the_bound_is_not_loose() -> None:
    """A sample that is moved by a thousandth of a cell exceeds it."""
    setting = next(s for s in SETTINGS if s.plane == (5, 6) and s.ratio == 2)
    boxes = boxes_of(setting.plane)[1000:1100]
    call = align_call(setting, boxes)
    moved = align_call(setting, boxes + np.array([0, 0.002, 0, 0.002, 0], np.float32))
    error = np.abs(call.forward()[0] - align_in_float64(moved)[0]).max()
    assert error > 4 * 2.0**-16 * np.abs(call.x).max()


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_random_calls_have_the_bits_of_torchvision(name: str) -> None:
    pytest.importorskip("torchvision", exc_type=Exception)
    compared = 0
    for seed in range(200):
        call = draw(seed, name)
        if call.x.dtype in (np.float32, np.float64) and call.boxes.dtype == call.x.dtype and call.ratio != 0:
            compared += check_in_torchvision(call)
    assert compared > 40
