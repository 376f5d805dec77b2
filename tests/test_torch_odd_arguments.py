"""Sizes of the functions on tensors: NumPy integers and vectors are ints; what is no size is refused by a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from geometries import FUNCTIONS
from hostile.arguments import odd_values, plain
from odd_calls import ERRORS, FORWARDS, KINDS, SIZES, good_call

torch = pytest.importorskip("torch")
pt = pytest.importorskip("pooltide.torch")

SIZE_KINDS = ("ints", "size", "shape", "divisor", "flag")


def _call(name: str, given: dict[str, Any], track: bool) -> Any:
    """The function's result; with `track` through autograd, which takes other ways than a plain call."""
    given = {
        k: torch.from_numpy(v.copy()) if k in ("grad_output", "indices") else v
        for k, v in given.items()
        if k != "out"
    }
    if not name.endswith("_backward"):
        given["input"] = torch.from_numpy(given["input"].copy()).requires_grad_(track)
        found = getattr(pt.functional, name)(**given)
        values = found[0] if isinstance(found, tuple) else found
        if track:
            values.sum().backward()
        return values.detach()
    given["grad_output"].requires_grad_(track)
    return getattr(pt, name)(**given).detach()


def _sized(name: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    given = good_call(name)
    for argument in given:
        kind = KINDS.get(argument) or ("shape" if name.endswith("_backward") else "array")
        if kind in SIZE_KINDS and argument != "return_indices":  # PyTorch takes what is true
            yield argument, kind, given


@pytest.mark.parametrize("track", [False, True], ids=["plain", "tracked"])
@pytest.mark.parametrize("name", FUNCTIONS + FORWARDS)
def test_numpy_integers_and_vectors_are_sizes(name: str, track: bool) -> None:
    for argument, kind, good in _sized(name):
        if kind in ("flag", "divisor"):
            continue
        usual = good[argument]
        if isinstance(usual, tuple):
            equal: list[Any] = [
                list(usual),
                np.array(usual),
                np.array(usual, np.uint8),
                tuple(map(np.int32, usual)),
                torch.Size(usual),
            ]
        else:
            equal = [
                type(size)([usual]) if isinstance(size, (list, tuple)) else np.full_like(size, usual)
                for size in SIZES
            ]
        expected = _call(name, good, track)
        for value in equal:
            for _ in range(2):
                assert torch.equal(_call(name, good | {argument: value}, track), expected), (argument, value)


@pytest.mark.parametrize("name", FUNCTIONS + FORWARDS)
def test_odd_sizes_are_read_right_or_refused_by_a_sentence(name: str) -> None:
    faults = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=PendingDeprecationWarning)  # np.matrix has it
        for argument, kind, good in _sized(name):
            for label, value in odd_values(kind, good[argument]):
                try:
                    found = _call(name, good | {argument: value}, False)
                    expected = _call(name, good | {argument: plain(kind, value)}, False)
                    if not torch.equal(found, expected):
                        faults.append(f"{argument}, {label}: another result than its plain equivalent")
                except Exception as error:
                    text = str(error)
                    ours = isinstance(error, ERRORS) and text.startswith(f"{name}: ") and "must" in text
                    # PyTorch has its own sentences where it allocates, and where it takes means of planes.
                    pytorchs = "can't allocate memory" in text or f"{name}: output_size must be" in text
                    if not (ours or pytorchs):
                        faults.append(f"{argument}, {label}: {type(error).__name__}: {text[:200]}")
    assert not faults, f"{len(faults)} odd values of {name}:\n" + "\n".join(faults)
