"""The NumPy functions: twelve gradients and twelve forwards, with arrays in guarded memory."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import numpy as np

import pooltide
from pooltide.kernels.plan import ENVIRONMENT

from . import problems
from .calls import MEMORY, Call, change_shape, odd_value
from .memory import Place, content
from .problems import FLOATS, Problem, Regions

LAYOUTS = ("planes", "planes", "planes", "channels_last", "channels_last", "view", "view", "unaligned")
OTHER_DTYPES = [
    np.dtype(t) for t in ("i1", "i4", "i8", "u8", "f2", "f4", "f8", ">f4", "c8", "?", "g", "U1", "V4")
]
OTHER_INDICES = (-1, -(2**63), 2**63 - 1, 2**31, 2**32, 2**31 - 1)
COMPARED = 0.03  # the share of calls with a result that the reference backend must confirm


def draw(rng: Random) -> Call:
    MEMORY.begin()
    pool = rng.choice(problems.POOLS)
    problem = problems.draw(rng, pool)
    call = _gradient(rng, problem) if rng.random() < 0.6 else _forward(rng, problem)
    if rng.random() < 0.5:
        for argument in rng.sample(list(call.given), min(len(call.given), rng.choice((1, 1, 1, 2)))):
            spoil(rng, call, problem, argument)
    if rng.random() < COMPARED:
        call.check = lambda result: compare(call, result)
    return call


def _gradient(rng: Random, problem: Problem) -> Call:
    dtype = FLOATS[problem.dtype]
    given: dict[str, Any] = {"grad_output": filled(rng, problem.output, dtype)}
    given["input"] = problem.input if rng.random() < 0.8 else filled(rng, problem.input, dtype)
    if problem.is_max:
        given["indices"] = indices_for(rng, problem, np.dtype(rng.choice(("i4", "i8"))))
    call = Call(f"pooltide.{problem.pool}_backward", getattr(pooltide, f"{problem.pool}_backward"), given)
    given |= problem.attributes
    if rng.random() < 0.4:
        given["out"] = out_for(rng, call, problem.input, dtype)
    return call


def _forward(rng: Random, problem: Problem) -> Call:
    dtype = FLOATS[problem.dtype]
    given: dict[str, Any] = {"input": filled(rng, problem.input, dtype)}
    given |= problem.attributes if problem.attributes else {"output_size": problem.outputs}
    return pool_call(rng, problem, given, np.int64 if problem.is_max else None)


def pool_call(rng: Random, problem: Problem | Regions, given: dict[str, Any], index: Any) -> Call:
    """A call of a forward, at times with indices of the dtype `index`, at times with `out`."""
    call = Call(f"pooltide.{problem.pool}", getattr(pooltide, problem.pool), given)
    places = index is not None and rng.random() < 0.6
    if places:
        given["return_indices"] = True
    if rng.random() < 0.4:
        given["out"] = out_for(rng, call, problem.output, FLOATS[problem.dtype])
        if places:
            given["out"] = (given["out"], out_for(rng, call, problem.output, np.dtype(index)))
    return call


def place(rng: Random, shape: tuple[int, ...], dtype: np.dtype[Any], layouts: tuple[str, ...]) -> Place:
    return MEMORY.place(rng, shape, dtype.itemsize, rng.choice(layouts))


def filled(rng: Random, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    array = place(rng, shape, dtype, (*LAYOUTS, "broadcast")).array(dtype)
    array[...] = content(rng, shape, dtype)
    return array


def indices_for(rng: Random, problem: Problem, dtype: np.dtype[Any]) -> Any:
    array = place(rng, problem.output, dtype, LAYOUTS).array(dtype)
    array[...] = content(rng, problem.output, dtype) % problem.plane
    return array


def out_for(rng: Random, call: Call, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    where = place(rng, shape, dtype, LAYOUTS)
    call.written.append(where)
    return where.array(dtype)


def spoil(rng: Random, call: Call, problem: Problem | Regions, argument: str) -> None:
    """Replace an argument by an odd one."""
    value = call.given[argument]
    if argument == "out" and type(value) is tuple:
        odd = rng.choice(
            [
                value[0],
                value[:1],
                (*value, value[0]),
                (value[0], None),
                list(value),
                value[::-1],
                (value[0],) * 2,
            ]
        )
        call.make_odd(argument, odd)
    elif type(value) is not np.ndarray or rng.random() < 0.15:
        kind = "shape" if argument == "input" and type(value) is tuple else argument
        label, odd = odd_value(rng, kind)
        call.make_odd(argument, odd, "" if type(odd) in (int, str, float) else f"<{label}>")
    else:
        _spoil_array(rng, call, argument, value, problem)


def _spoil_array(rng: Random, call: Call, argument: str, value: Any, problem: Problem | Regions) -> None:
    shape, dtype = list(value.shape), value.dtype
    match rng.randrange(7):
        case 0 | 1:
            change_shape(rng, shape)
        case 2:
            dtype = rng.choice(OTHER_DTYPES)
        case 3 if value.size and value.dtype.kind == "i":
            _misplace(rng, value, problem.plane)
            call.good = False
            return
        case 4:
            value.setflags(write=False)
            call.good = call.good and argument != "out"
            return
        case 5 if argument == "out":
            other = rng.choice([v for v in call.given.values() if type(v) is np.ndarray])
            if where := MEMORY.place_of(other):
                _replace(call, "out", where, other.dtype)
            return
        case _:
            where = place(rng, tuple(shape), dtype, ("broadcast", "view"))
            _replace(call, argument, where, dtype)
            return
    where = place(rng, tuple(shape), dtype, LAYOUTS)
    _replace(call, argument, where, dtype)


def _replace(call: Call, argument: str, where: Place, dtype: np.dtype[Any]) -> None:
    call.make_odd(argument, where.array(dtype))
    if argument == "out":
        call.written.append(where)


def _misplace(rng: Random, indices: Any, plane: int) -> None:
    """Put an index outside the plane."""
    bits = indices.itemsize * 8 - 1
    outside = [n for n in (*OTHER_INDICES, plane, plane + 1) if -(2**bits) <= n < 2**bits]
    indices[tuple(rng.randrange(n) for n in indices.shape)] = rng.choice(outside)


def compare(call: Call, result: Any) -> str | None:
    """What the reference backend says about a result."""
    found = [np.array(part) for part in (result if isinstance(result, tuple) else (result,))]
    if MEMORY.outside(call.written):
        return None  # told elsewhere; the arguments are no longer what they were
    given = {name: value for name, value in call.given.items() if name != "out"}
    os.environ[ENVIRONMENT] = "reference"
    try:
        expected = call.function(**given)
    except Exception as error:
        return f"{call.name} gave a result, but the reference raised {type(error).__name__}: {error}"
    finally:
        del os.environ[ENVIRONMENT]
    expected = expected if isinstance(expected, tuple) else (expected,)
    if len(found) == len(expected) and all(map(equal_bits, found, expected)):
        return None
    return f"{call.name} differs from the reference"


def equal_bits(a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind == "i":
        return bool((a == b).all())
    word = f"u{a.itemsize}"
    same = np.ascontiguousarray(a).view(word) == np.ascontiguousarray(b).view(word)
    return bool((same | (np.isnan(a) & np.isnan(b))).all())
