"""Odd values for every argument of the 24 NumPy functions: the result of their plain equivalent, or a sentence."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import pooltide
from geometries import FUNCTIONS
from hostile.arguments import odd_values, plain
from odd_calls import ERRORS, FORWARDS, KINDS, SIZES, good_call
from shares import fast_some


def _kind(name: str, argument: str) -> str:
    return KINDS.get(argument) or ("shape" if name.endswith("_backward") else "array")


def _copied(result: Any) -> list[Any]:
    return [np.array(np.asarray(part)) for part in (result if isinstance(result, tuple) else (result,))]


def _fault(name: str, argument: str, label: str, value: Any) -> str | None:
    """What is wrong with how a call with one odd value goes, or None."""
    given = good_call(name) | {argument: value}
    kind = _kind(name, argument)
    try:
        found = _copied(getattr(pooltide, name)(**given))
    except ERRORS as error:
        text = str(error)
        told = f"\n    {type(error).__name__}: " in (inspect.getdoc(getattr(pooltide, name)) or "")
        if not told or not text.startswith(f"{name}: ") or "must" not in text or len(text) > 600:
            return f"{argument}, {label}: {type(error).__name__}: {text[:300]}"
        return None
    except BaseException as error:
        return f"{argument}, {label}: {type(error).__name__}: {str(error)[:300]}"
    try:
        if kind == "out":  # what it held before counts for nothing
            value = None
        expected = _copied(getattr(pooltide, name)(**(good_call(name) | {argument: plain(kind, value)})))
    except Exception as error:
        return (
            f"{argument}, {label}: accepted, but its plain equivalent fails: {type(error).__name__}: {error}"
        )
    if len(found) != len(expected) or not all(map(np.array_equal, found, expected)):
        return f"{argument}, {label}: accepted, but with another result than its plain equivalent"
    return None


@pytest.mark.parametrize("name", fast_some(FUNCTIONS + FORWARDS, 2))
def test_odd_values_are_read_right_or_refused_by_a_sentence(name: str) -> None:
    good = good_call(name)
    faults = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=PendingDeprecationWarning)  # np.matrix has it
        for argument in good:
            for label, value in odd_values(_kind(name, argument), good[argument]):
                faults += [found for found in [_fault(name, argument, label, value)] if found]
    assert not faults, f"{len(faults)} odd values of {name}:\n" + "\n".join(faults)


@pytest.mark.parametrize("name", [name for name in FORWARDS if "max" in name])
@pytest.mark.parametrize("at", [0, 1])
def test_odd_pairs_for_values_and_indices(name: str, at: int) -> None:
    run = getattr(pooltide, name)
    good = good_call(name) | {"return_indices": True}
    expected = run(**(good | {"out": None}))
    for label, value in odd_values("out", np.zeros_like(expected[at])):
        pair = [np.zeros_like(part) for part in expected]
        pair[at] = value
        try:
            found = run(**(good | {"out": pair}))
        except ERRORS as error:
            text = str(error)
            assert text.startswith(f"{name}: out"), f"{label}: {text}"
            assert "must" in text, f"{label}: {text}"
            continue
        assert found[at] is value, label
        assert all(map(np.array_equal, _copied(found), expected)), label


def test_values_and_indices_must_not_share_memory() -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 8))
    memory = np.zeros((2, 3, 4, 4))
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"max_pool2d: out\[1\] shares memory with out\[0\]; it must have its own"
        ):
            pooltide.max_pool2d(x, 2, return_indices=True, out=(memory, memory.view(np.int64)))
    record = np.zeros((2, 3, 4, 4), [("value", np.float64), ("index", np.int64)])
    found = pooltide.max_pool2d(x, 2, return_indices=True, out=(record["value"], record["index"]))
    expected = pooltide.max_pool2d(x, 2, return_indices=True)
    assert all(map(np.array_equal, found, expected))


@pytest.mark.parametrize("name", FUNCTIONS + FORWARDS)
def test_numpy_integers_and_vectors_are_sizes(name: str) -> None:
    """Each size in turn; the results are those of ints, and the second call is kept as those of ints are."""
    good = good_call(name)
    run = getattr(pooltide, name)
    for argument in [a for a in good if _kind(name, a) in ("ints", "size", "shape")]:
        usual = good[argument]
        if not isinstance(usual, tuple):
            equal = [
                type(size)([usual]) if isinstance(size, (list, tuple)) else np.full_like(size, usual)
                for size in SIZES
            ]
        else:
            equal = [
                list(usual),
                np.array(usual),
                np.array(usual, np.uint8),
                tuple(map(np.int32, usual)),
                np.array(usual)[::-1][::-1],
            ]
        expected = _copied(run(**good))
        for value in equal:
            for _ in range(2):
                assert all(map(np.array_equal, _copied(run(**(good | {argument: value}))), expected)), (
                    argument,
                    value,
                )


def test_a_plain_call_after_an_odd_one_is_not_confused_with_it() -> None:
    """A value that equals every other must not be found in a cache in place of theirs, nor they in its."""
    equal = type("Equal", (int,), {"__eq__": lambda *_: True, "__hash__": lambda _: hash(2)})
    g = np.ones((1, 1, 3, 3), np.float32)
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    for _ in range(2):
        assert pooltide.avg_pool2d_backward(g, (1, 1, 6, 6), 2, equal(2))[0, 0, 0, 0] == 0.25
        assert pooltide.avg_pool2d_backward(g, (1, 1, 6, 6), 1, 2)[0, 0, 0, 0] == 1
        assert pooltide.avg_pool2d(x, equal(2)).shape == (1, 1, 3, 3)
        assert pooltide.avg_pool2d(x, 3).shape == (1, 1, 2, 2)


@pytest.mark.parametrize(
    "value", [10**5000, -(10**5000), (10**5000, 2), [10**5000]], ids=["+", "-", "tuple", "list"]
)
def test_ints_too_long_to_print_are_told_by_their_bits(value: Any) -> None:
    g = np.ones((1, 1, 3, 3), np.float32)
    for call in (
        lambda: pooltide.avg_pool2d_backward(g, (1, 1, 6, 6), value),
        lambda: pooltide.avg_pool2d_backward(g, (1, 1, 6, value), 2),
        lambda: pooltide.avg_pool2d(g, value),
        lambda: pooltide.adaptive_avg_pool2d(g, value),
    ):
        with pytest.raises((ValueError, TypeError), match=r"an int of 16610 bits.* must be"):
            call()


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "adaptive" in name])
def test_an_input_vector_counts_by_its_values(name: str) -> None:
    """Calls whose vectors differ in values alone are different calls, however they are kept."""
    good = good_call(name)
    *batch, last = good["input"]
    for length in (last, last + 1, last + 2, last):
        found = getattr(pooltide, name)(**good | {"input": np.array([*batch, length]), "out": None})
        assert np.array_equal(
            found, getattr(pooltide, name)(**good | {"input": (*batch, length), "out": None})
        )


def test_an_empty_result_may_be_too_large_for_numpy() -> None:
    with pytest.raises(ValueError, match=r"^adaptive_max_pool2d: the result would have over 2\*\*63 bytes"):
        pooltide.adaptive_max_pool2d(np.ones((2, 0, 12, 7), np.float32), 2**61, return_indices=True)
