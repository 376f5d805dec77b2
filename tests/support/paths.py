"""Where the folders of the repository are, for tests and the programs beside them."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS, NATIVE, TOOLS = ROOT / "docs", ROOT / "native", ROOT / "tools"
TESTS = ROOT / "tests"
SUPPORT, PROGRAMS = TESTS / "support", TESTS / "c" / "programs"
