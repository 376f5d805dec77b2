"""An entrance that is wrong in every way, to prove that the suite sees it."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from .calls import MEMORY, Call


def draw(rng: Random) -> Call:
    MEMORY.begin()
    place = MEMORY.place(rng, (3, 5), 4, rng.choice(("planes", "view", "unaligned")))
    name = rng.choice(list(FAULTS))
    call = Call(f"faulty.{name}", FAULTS[name], {"out": place.array(np.float32)}, name == "good")
    call.written = [] if name == "input" else [place]
    if name == "at_the_end":  # the byte after the array is on the forbidden page
        room = place.slot.bytes[-60:]
        call.given["out"] = room.view(np.float32).reshape(3, 5)
    return call


def _good(out: Any) -> Any:
    out[...] = 1
    return out


def _outside(out: Any) -> None:
    slot = MEMORY._used[0]
    slot.bytes[:] += np.uint8(1)


def _beyond(out: Any) -> None:
    end = out.ctypes.data + out.nbytes
    ctypes.memset(end, 0, 1)


def _refusal(out: Any) -> None:
    raise ValueError("refusal: out has rank 2; it must have rank 3.")


def _odd(out: Any) -> None:
    raise KeyError("odd")


FAULTS: dict[str, Callable[..., Any]] = {
    "good": _good,
    "input": lambda out: out.fill(2),
    "outside": _outside,
    "at_the_end": _beyond,
    "abort": lambda out: os.abort(),
    "null": lambda out: ctypes.string_at(0),
    "hang": lambda out: time.sleep(1e6),
    "odd": _odd,
    "refusal": _refusal,
}
