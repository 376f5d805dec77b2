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

    @property
    def regional(self) -> bool:
        """Whether it pools over regions of interest, or is the gradient of such a pool."""
        return "roi_" in self.kind

    @property
    def position_sensitive(self) -> bool:
        """Whether each bin of a region has an input channel of its own."""
        return self.kind.startswith("ps_")

    @property
    def writes_indices(self) -> bool:
        """Whether it is a forward that finds maxima."""
        return self.kind in ("maximum", "roi_pool")
