"""What the name of a kind of computation says; problem/problem.py lists the kinds."""

from __future__ import annotations


class OfKind:
    __slots__ = ()
    kind: str

    @property
    def gradient(self) -> bool:
        return self.kind.endswith("_gradient")

    @property
    def average(self) -> bool:
        return self.kind.startswith("average")

    @property
    def unpool(self) -> bool:
        """Whether it is an unpool or its gradient."""
        return self.kind.startswith("unpool")
