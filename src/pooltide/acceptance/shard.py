"""A share of a list of cases, such as 3/16."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .manifest_entry import short


@dataclass(frozen=True, slots=True)
class Shard:
    """The share `number` of `of` shares of the cases: each case whose place, counted from 1, is equal to
    `number` modulo `of`."""

    number: int
    of: int

    def has(self, place: int) -> bool:
        """Whether the shard has the case at a place, counted from 0."""
        return place % self.of == self.number - 1

    def count(self, total: int) -> int:
        """How many of `total` cases the shard has."""
        return len(range(self.number - 1, total, self.of))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def read_shard(text: str) -> Shard:
    """The shard that a text such as 3/16 means. ValueError: it means none."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text)
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError(
            f"shard is {short(text)}; it must be two numbers such as 3/16, "
            "the first 1 or more and not larger than the second"
        )
    return Shard(int(match[1]), int(match[2]))
