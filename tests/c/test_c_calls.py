"""Random calls of the C library under sanitizers; tests/hostile/c_calls.py can make more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from c_programs import need_compiler
from hostile.c_calls import operators_header, run
from paths import PROGRAMS
from pooltide.c.signatures import functions
from shares import fast_first

# Between their calls, the library's lock orders the threads. So each waits here until another is here, by an
# atomic that orders nothing: then both write, on a machine of any load.
RACE = """static volatile long races; static std::atomic<int> here{0};
    here.fetch_add(1, std::memory_order_relaxed);
    while (here.load(std::memory_order_relaxed) < 2) usleep(100);
    races = races + 1;"""
NO_FAULTS = {"crashes": 0, "hangs": 0, "bytes_outside": 0}


@pytest.mark.parametrize("sanitizer", ["address", "none", "thread"])
@pytest.mark.slow
def test_random_calls_from_four_threads(sanitizer: str) -> None:
    """ThreadSanitizer ignores the program's own races, for the contents of device memory: hostile/own_races.txt."""
    need_compiler("g++")
    calls = 1000 if sanitizer == "thread" else 3000
    assert run(calls, 7, sanitizer=sanitizer) == {"calls": calls, **NO_FAULTS}


def test_the_calls_reach_every_function() -> None:
    text = (PROGRAMS / "garbage.cpp").read_text() + operators_header()
    assert [f.name for f in functions() if f"{f.name}(" not in text and not f.prototype] == []


@pytest.mark.parametrize(
    ("sanitizer", "good", "planted", "finds"),
    fast_first(
        [
            ("none", "to, made.values())", "to, made.values() + 1)", "bytes_outside"),
            ("address", "Fenced<char, 256> host;", "Fenced<char, 16> host;", "crashes"),
            ("thread", "tried++;", f"{RACE} tried++;", "crashes"),
            ("none", "alarm(CALL_LIMIT);\n}", "alarm(1);\n    for (;;) pause();\n}", "hangs"),
        ]
    ),
)
def test_a_planted_fault_is_found(
    sanitizer: str, good: str, planted: str, finds: str, tmp_path: Path
) -> None:
    need_compiler("g++")
    text = (PROGRAMS / "garbage.cpp").read_text()
    assert good in text
    source = tmp_path / "garbage.cpp"
    source.write_text(text.replace(good, planted))
    assert run(1000, 7, sanitizer=sanitizer, source=source)[finds] > 0
