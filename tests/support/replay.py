"""The enumerated geometries for a program on another processor, native/check/replay.cpp, such as one in an emulator.

    python tests/support/replay.py [--share I/N] [--only WORD] PROGRAM…

Problems, data and expected results go to the program's standard input.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from enumeration import Checker, Geometry, geometries
from pooltide.kernels import cpu


class Replay(Checker):
    """Sends the problems to a program, which computes and compares."""

    def __init__(self, program: list[str]) -> None:
        super().__init__()
        self.program = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def paths(self, prepared: Any, given: Any, want: list[Any], layout: str) -> None:
        kind, store, quotient, divisor, last, index_bytes, n, c, cells, windows, dilation, *tables = prepared
        head = [kind, store, quotient, int(divisor), last, index_bytes, n, c, *cells, *windows, *dilation]
        grad, x, indices = given
        parts = [grad if x is None else x, *([indices] if indices is not None else []), *want[1:], want[0]]
        assert self.program.stdin is not None
        try:
            self.program.stdin.write(np.array(head, np.int64).tobytes())
            self.program.stdin.writelines(part.tobytes() for part in (*tables, *parts))
        except BrokenPipeError:
            raise AssertionError(self.said()) from None

    def run(self, numbered: Iterable[tuple[int, Geometry]]) -> str:
        """Sends the geometries; returns what the program says of them."""
        with mock.patch.object(cpu, "_native", SimpleNamespace(Prepared=lambda *facts: facts)):
            for number, geometry in numbered:
                self.check(number, geometry)
        said = self.said()
        assert self.program.returncode == 0, said
        return said

    def said(self) -> str:
        return self.program.communicate()[0].decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--share", default="0/1", help="I/N: only every N-th geometry, from the I-th on")
    parser.add_argument("--only", default="", help="a part of a kind's name, such as strided_avg2d")
    parser.add_argument("program", nargs="+")
    given = parser.parse_args()
    torch.set_num_threads(1)
    at, n = map(int, given.share.split("/"))
    sys.stdout.write(Replay(given.program).run(geometries((at, n), given.only)))


if __name__ == "__main__":
    main()
