"""`pooltide cc` explains names of CANN that are not there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from c_programs import COMPILERS, POOLTIDE, need_compiler
from shares import fast_first

CASES = [
    (
        '#include "aclnnop/aclnn_gelu.h"\nint main() {}\n',
        "pooltide: aclnnop/aclnn_gelu.h is no header that pooltide has; `pooltide ops` lists the operators, "
        "docs/c.md the other functions; `pooltide operators new aclnnGelu` begins one of your own.",
    ),
    (
        '#include "acl/acl.h"\nint main() { return aclrtNobody(0); }\n',
        "pooltide: aclrtNobody is no name that pooltide has; ",
    ),
    (
        '#include "acl/acl.h"\nint main() { return aclnnGeluGetWorkspaceSize(0); }\n',
        "pooltide: aclnnGeluGetWorkspaceSize is no function that pooltide has; ",
    ),
    (
        '#include "acl/acl.h"\nint main() { return aclnnMaxPool(0, 0, 0, 0); }\n',
        "pooltide: aclnnMaxPool is in aclnnop/aclnn_max_pool.h; include that header.",
    ),
    (
        'extern "C" int aclrtNobody(int);\nint main() { return aclrtNobody(0); }\n',
        "aclrtNobody is no name",
    ),
]


@pytest.mark.parametrize(
    ("source", "says"),
    fast_first(CASES),
)
@pytest.mark.parametrize("cxx", fast_first(COMPILERS))
def test_a_missing_name_is_explained(tmp_path: Path, cxx: str, source: str, says: str) -> None:
    need_compiler(cxx)
    file = tmp_path / "program.cpp"
    file.write_text(source)
    command = ["env", f"CXX={cxx}", POOLTIDE, "cc", file, "-o", tmp_path / "program"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    lines = [line for line in run.stderr.splitlines() if line.startswith("pooltide: ")]
    assert len(lines) == 1, run.stderr
    assert says in lines[0]


def test_other_errors_are_the_compiler_s(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return nothing; }\n")
    command = [POOLTIDE, "cc", tmp_path / "program.c", "-o", tmp_path / "program"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "nothing" in run.stderr
    assert "pooltide: " not in run.stderr
