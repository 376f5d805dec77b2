"""A call of one of our functions: its arguments, good or odd, and the judgement of what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

from .arguments import odd_values
from .memory import Memory, Place
from .worker import Tally, our_message

MEMORY = Memory()
# A bad argument raises one of these. Memory that the machine does not have is no bad argument.
REFUSALS = (TypeError, ValueError, IndexError)
KINDS = {
    "grad_output": "array", "input": "array", "x": "array", "indices": "indices", "out": "out", "shape": "shape",
    "kernel_size": "ints", "stride": "ints", "padding": "ints", "dilation": "ints", "output_size": "size",
    "boxes": "boxes", "spatial_scale": "scale", "sampling_ratio": "count", "aligned": "flag", "ceil_mode": "flag", "count_include_pad": "flag", "return_indices": "flag", "divisor_override": "divisor",
}  # fmt: skip
GOOD = {
    "array": np.ones((2, 3, 5, 7), np.float32),
    "indices": np.ones((2, 3, 5, 7), np.int64),
    "out": np.ones((2, 3, 5, 7), np.float32),
    "shape": (2, 3, 5, 7),
    "boxes": np.zeros((3, 5), np.float32),
    "scale": 0.5,
}


@dataclass
class Call:
    title: str  # as a person would write it: pooltide.avg_pool2d_backward
    function: Callable[..., Any]
    given: dict[str, Any]
    good: bool = True  # whether the call must give a result
    labels: dict[str, str] = field(default_factory=dict)
    written: list[Place] = field(default_factory=list)
    accepted: Callable[[BaseException], bool] = lambda error: False  # errors besides ours
    check: Callable[[Any], str | None] | None = None  # what is wrong with a result

    @property
    def name(self) -> str:
        return self.title.removesuffix(".default").removesuffix(".grad_input").rpartition(".")[2]

    def make_odd(self, argument: str, value: Any, label: str = "") -> None:
        self.given[argument], self.good = value, False
        if label:
            self.labels[argument] = label

    def __str__(self) -> str:
        shown = (f"{name}={self.labels.get(name) or show(value)}" for name, value in self.given.items())
        return f"{self.title}({', '.join(shown)})"

    def run(self, tally: Tally) -> None:
        MEMORY.seal()
        tally.add(calls=1)
        wrong = None
        try:
            result = self.function(**self.given)
        except BaseException as error:
            tally.add(refusals=1)
            wrong = self._judge(error)
        else:
            tally.add(results=1)
            wrong = self.check(result) if self.check else None
        if changed := MEMORY.outside(self.written):
            tally.add(outside=changed)
            tally.find("outside", f"{self.name} changed {changed} bytes outside", str(self))
        if wrong:
            tally.find("odd error", wrong, str(self))

    def _judge(self, error: BaseException) -> str | None:
        text = f"{self.name} raised {type(error).__name__}: {str(error)[:300]}"
        if isinstance(error, MemoryError) or self.accepted(error):
            return None
        if isinstance(error, REFUSALS) and "PyTorch says:" in str(error):
            return None  # PyTorch refuses it, too, such as a call without channels
        if not isinstance(error, REFUSALS) or not our_message(self.name, error):
            return text
        return f"{text} (of a good call)" if self.good else None


@lru_cache(maxsize=64)
def _odd(kind: str) -> list[tuple[str, Any]]:
    return list(odd_values(kind, GOOD.get(kind, 3)))


def odd_value(rng: Random, argument: str) -> tuple[str, Any]:
    """An odd value for an argument, and its label."""
    return rng.choice(_odd(KINDS[argument]))


def show(value: Any) -> str:
    """A value as Python text; of an array what its checks depend on."""
    if isinstance(value, np.ndarray):
        strides = "" if value.flags.c_contiguous else f", strides={value.strides}"
        return f"array({value.shape}, {value.dtype}{strides})"
    if type(value).__name__ == "Tensor":
        strides = "" if value.layout.__str__() != "torch.strided" else f", strides={value.stride()}"
        return f"tensor({tuple(value.shape)}, {value.dtype}{strides})"
    if isinstance(value, (tuple, list)) and len(value) < 9:
        inner = ", ".join(map(show, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    try:
        return f"{value!r:.80}"
    except Exception:
        return f"a {type(value).__name__}"


def change_shape(rng: Random, shape: list[int]) -> None:
    """Changes one length, or adds or removes an axis."""
    if rng.random() < 0.5:
        axis = rng.randrange(len(shape))
        shape[axis] = max(0, shape[axis] + rng.choice((-1, 1, 2, -shape[axis])))
    elif rng.random() < 0.5:
        shape.insert(0, rng.randrange(3))
    else:
        shape.pop()
