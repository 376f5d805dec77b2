"""C programs call operators of users' pages, and operators that are only declared."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from c_programs import compile_with_cc, need_compiler, run_program
from own_operator import CODE, PAGE
from paths import PROGRAMS
from pooltide.c.build import BuildInputs, install

SOURCE = PROGRAMS / "own_operator.c"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operators")
    (folder / "many.toml").write_text(PAGE)
    (folder / "many.py").write_text(CODE)
    return folder


@pytest.fixture(scope="module")
def program(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_compiler("gcc")
    made = install(BuildInputs(folders=(str(folder),)), tmp_path_factory.mktemp("library"))
    target = folder / "program"
    command = ["gcc", *made.compile_flags, str(SOURCE), "-o", str(target), *made.link_flags, "-g"]
    subprocess.run([*command, "-Wall", "-Wextra", "-Werror"], check=True)
    return target


def run_with(program: Path, file: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Runs the program while the file has this text."""
    before = file.read_text()
    file.write_text(text)
    try:
        return run_program(program)
    finally:
        file.write_text(before)


def test_a_c_program_calls_an_operator_of_a_page(program: Path) -> None:
    elsewhere = {"POOLTIDE_OPERATORS": "/nowhere"}  # the program has its own folders
    run = run_program(program, environment={"POOLTIDE_CHECKS": "strict"} | elsewhere)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "4.75 9.75 14.75\n"


def test_the_page_s_rules_and_the_checks_work_in_c(program: Path) -> None:
    run = run_program(program, "big")
    assert run.returncode == 1
    assert "aclnnManyGetWorkspaceSize" not in run.stderr
    assert "pooltide: aclnnMany: times is 10; it must be 9 at most. [161002" in run.stderr
    run = run_program(program, "late")
    assert "memory that aclnnMany writes (sums) on stream 1, and the program has not waited" in run.stderr


def test_a_function_that_raises_names_its_line_and_the_program_s(program: Path, folder: Path) -> None:
    run = run_with(program, folder / "many.py", CODE.replace("    selfRef +=", "    1 / 0\n    selfRef +="))
    assert run.returncode == 1
    assert (
        "aclnnMany: many.py:many raised ZeroDivisionError: division by zero, at many.py:4 in many"
        in run.stderr
    )


def test_a_page_that_changed_its_parameters_asks_for_a_new_build(program: Path, folder: Path) -> None:
    page = PAGE.replace('"small", type = "int32"', '"small", type = "int64"')
    run = run_with(program, folder / "many.toml", page)
    assert run.returncode == 2
    assert (
        f"pooltide or the parameters in the pages of {folder} changed since this library was built; compile"
        in run.stderr
    )


DECLARED = """
#include "aclnnop/aclnn_foo.h"
#include "setup.h"
int main(void) {
    uint64_t size = 0;
    aclOpExecutor *executor = NULL;
    begin();
    void *block = device(12), *in = numbers(3);
    const int64_t dims[] = {3};
    aclTensor *self = aclCreateTensor(dims, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, dims, 1, in);
    aclTensor *out = aclCreateTensor(dims, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, dims, 1, block);
    NEED(aclnnFooGetWorkspaceSize(self, 0.5, NULL, out, &size, &executor));
    NEED(aclnnFoo(NULL, 0, executor, stream));
    NEED(aclrtSynchronizeStream(stream));
    float host[3];
    return aclrtMemcpy(host, 12, block, 12, ACL_MEMCPY_DEVICE_TO_HOST);
}
"""
PHASE_ONE = (
    "aclnnStatus aclnnFooGetWorkspaceSize(const aclTensor *self, double alpha, const aclIntArray *dims, "
    "aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor)"
)


def test_an_operator_that_is_only_declared(tmp_path: Path) -> None:
    source = tmp_path / "declared.c"
    source.write_text(DECLARED)
    include = f"-I{PROGRAMS}"
    program = compile_with_cc(source, tmp_path / "declared", include, "--declare", PHASE_ONE)
    run = run_program(program)
    assert run.returncode == 0, run.stderr
    assert run.stderr.startswith("pooltide: aclnnFoo: it is only declared, so nothing is computed; ")
