"""docs/acceptance.md names what the program has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pooltide.acceptance.verdicts import STANDARDS

PAGE = Path(__file__).parent.parent / "docs" / "acceptance.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="NO DOCS: the tests run outside the source tree")


def first_column(title: str) -> list[str]:
    table = PAGE.read_text("utf-8").partition(f"| {title} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|", table, re.M)


def test_the_page_has_every_standard_in_order() -> None:
    assert first_column("standard") == list(STANDARDS)
