"""The constants of the planners of GPU kernels that nobody fitted: what a planner may do, and still be right.

    python tests/support/tunables.py      lists them

`opened(tunable, factor)` changes one for a while. Whatever its value, a planner must refuse a problem or return
launches with the right bits.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, NamedTuple

from cuda_problems import changed
from pooltide.kernels import cuda

FACTORS = (0.5, 2.0, 8.0)
# Modules that plan nothing, and names of facts that nobody may tune: of hardware, formats and encodings.
NO_PLANNERS = {"launch", "tuned", "tuning"}
FACTS = {
    *(
        "BANDWIDTH",
        "BANKS",
        "BRANCHES",
        "CORES",
        "ISSUED",
        "LINE",
        "MAX_BLOCKS",
        "MAX_THREADS",
        "RESERVED",
        "RESIDENT_BLOCKS",
    ),
    *("ELEMENTS", "H200", "KINDS", "LANES", "MASK_BITS", "QUOTIENTS", "SECTOR", "STATIC_BYTES"),
    *("VECTOR_BYTES", "WINDOW_BITS"),
}


class Tunable(NamedTuple):
    module: Any
    name: str
    value: Any


def tunables(imported: bool = True) -> list[Tunable]:
    """`imported`: with those that a module imports, as each of its importers can have another value."""
    found = []
    for listed in walk_packages(cuda.__path__, f"{cuda.__name__}."):
        short = listed.name.rpartition(".")[2]
        if listed.ispkg or ".runtime." in listed.name or short in NO_PLANNERS:
            continue
        module = import_module(listed.name)
        assigned = [name for name in vars(module) if name.isupper() and not name.startswith("_")]
        found += [
            Tunable(module, name, value)
            for name in assigned
            if name not in FACTS
            and (imported or _defined(module, name))
            and numeric(value := getattr(module, name))
        ]
    return found


def _defined(module: Any, name: str) -> bool:
    """Whether a module defines a name, and does not import it."""
    with open(module.__file__, encoding="utf-8") as file:
        return any(line.split(" = ")[0].split(", ").count(name) for line in file if " = " in line)


def numeric(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(numeric, value.values()))
    if isinstance(value, tuple):
        return bool(value) and all(map(numeric, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def scaled(value: Any, factor: float) -> Any:
    if isinstance(value, dict):
        return {key: scaled(one, factor) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(scaled(one, factor) for one in value)
    return value * factor if isinstance(value, float) else max(int(value * factor), 1)


@contextmanager
def opened(tunable: Tunable, factor: float) -> Iterator[None]:
    with changed(tunable.module, **{tunable.name: scaled(tunable.value, factor)}):
        yield


def main() -> None:
    listed = tunables(imported=False)
    for module, count in sorted(Counter(one.module.__name__.rpartition(".")[2] for one in listed).items()):
        names = ", ".join(one.name for one in listed if one.module.__name__.endswith(f".{module}"))
        print(f"{count:4} {module}: {names}")
    print(f"{len(listed):4} in all")


if __name__ == "__main__":
    sys.exit(main())
