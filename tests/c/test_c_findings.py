"""What a finding says beside its sentence: lines of the program, counts, a report, the exit status."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import pytest

from c_programs import compile_program, run_program
from paths import PROGRAMS

SOURCE = """
static void wrong(void *block) {
    float host[3];
    aclrtMemcpy(host, 12, block, 12, ACL_MEMCPY_DEVICE_TO_HOST);  /* line 5 */
}
int main(int argc, char **argv) {
    void *block = NULL;
    (void)argv;
    if (aclInit(NULL) || aclrtSetDevice(0)) return 2;
    for (int i = 0; i < 300; i++) {
        if (aclrtMalloc(&block, 12, ACL_MEM_MALLOC_HUGE_FIRST)) return 2;  /* line 12 */
        wrong(block);  /* line 13 */
        if (aclrtFree(block)) return 2;  /* line 14 */
    }
    if (argc > 1) aclrtFree(block);  /* line 16 */
    return aclFinalize();
}
"""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _program(SOURCE, tmp_path_factory.mktemp("c"), "-g")


def _program(text: str, folder: Path, *flags: str) -> Path:
    source = folder / "wrong.c"
    source.write_text(f'#include "acl/acl.h"\n{text}')
    return compile_program(source, folder / "wrong", *flags)


def _need_symbolizer() -> None:
    if not (shutil.which("llvm-symbolizer") or shutil.which("addr2line")):
        pytest.skip("neither llvm-symbolizer nor addr2line is installed: lines of C are NOT tested")


def test_a_finding_names_its_lines_once_and_is_counted(wrong: Path) -> None:
    _need_symbolizer()
    run = run_program(wrong, "twice")
    first, double, times = run.stderr.splitlines()
    place = rf" At {wrong}\.c:5 in wrong, called at {wrong}\.c:13 in main\."
    made = rf" The memory was taken at {wrong}\.c:12 in main\."
    assert re.fullmatch(rf"pooltide: aclrtMemcpy: src has 12 bytes .* are read\.{place}{made}", first)
    freed = rf"At {wrong}\.c:16 in main\.{made} The memory was freed at {wrong}\.c:14 in main\."
    assert re.search(freed + "$", double)
    assert times == first.replace("pooltide: ", "pooltide: 300 times: ")
    assert run.returncode == 0


def test_without_debug_information_a_finding_names_the_function(tmp_path: Path) -> None:
    _need_symbolizer()
    run = run_program(_program(SOURCE, tmp_path, "-g0"))
    assert f" At wrong of {tmp_path}/wrong, called at main of {tmp_path}/wrong." in run.stderr


def test_without_a_symbolizer_a_finding_names_the_address(wrong: Path, tmp_path: Path) -> None:
    run = run_program(wrong, environment={"PATH": str(tmp_path)})
    assert re.search(rf" At {wrong}\+0x[0-9a-f]+, called at {wrong}\+0x", run.stderr)


@pytest.mark.parametrize(("setting", "status"), [(None, 86), ("7", 7), ("0", 0), ("no", 86)])
def test_strict_programs_that_ignore_statuses_fail(wrong: Path, setting: str | None, status: int) -> None:
    environment = {"POOLTIDE_CHECKS": "strict"} | ({"POOLTIDE_EXIT_STATUS": setting} if setting else {})
    run = run_program(wrong, environment=environment)
    assert run.returncode == status
    said = f"pooltide: the program has 1 finding and returns 0, so it exits with {status}"
    assert (said in run.stderr) == (status != 0)


def test_a_failure_that_the_program_looks_at_changes_no_exit_status(tmp_path: Path) -> None:
    for look, status in (("aclGetRecentErrMsg()", 0), ("NULL", 86)):
        text = f"""
int main(void) {{
    void *block = NULL;
    if (aclInit(NULL) || aclrtSetDevice(0)) return 2;
    int failed = aclrtMalloc(&block, 0, ACL_MEM_MALLOC_HUGE_FIRST) != 0;
    const char *text = {look};
    return aclFinalize() || !failed || (text && !*text);
}}
"""
        (folder := tmp_path / str(status)).mkdir()
        run = run_program(_program(text, folder), environment={"POOLTIDE_CHECKS": "strict"})
        assert run.returncode == status, run.stderr


def test_a_report_has_every_finding(wrong: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run = run_program(wrong, "twice", environment={"POOLTIDE_REPORT": str(report)})
    assert run.returncode == 0
    first, second = json.loads(report.read_text())["findings"]
    assert (first["count"], second["count"]) == (300, 1)
    assert first["message"].startswith("aclrtMemcpy: src has 12 bytes")
    assert {origin["what"] for origin in second["origins"]} == {
        "the memory was taken",
        "the memory was freed",
    }


def test_abort_stops_at_the_first_finding(wrong: Path) -> None:
    run = run_program(wrong, "twice", environment={"POOLTIDE_ABORT": "1"})
    assert run.returncode == -signal.SIGABRT
    assert run.stderr.count("pooltide: ") == 1


def test_a_program_without_finalize_is_told_its_leaks_after_its_global_objects_end(tmp_path: Path) -> None:
    text = """
#include <cstdlib>
#include "acl/acl.h"
struct Owner {
    void *block = nullptr;
    ~Owner() { aclrtFree(block); }
};
static Owner owner;
static void *left;
int main(int argc, char **) {
    if (aclInit(nullptr) || aclrtSetDevice(0)) return 2;
    if (aclrtMalloc(&owner.block, 8, ACL_MEM_MALLOC_HUGE_FIRST)) return 2;
    return argc > 1 ? aclrtMalloc(&left, 4, ACL_MEM_MALLOC_HUGE_FIRST) : 0;
}
"""
    source = tmp_path / "leak.cpp"
    source.write_text(text)
    program = compile_program(source, tmp_path / "leak", "-g")
    strict = {"POOLTIDE_CHECKS": "strict"}
    clean, leaking = (
        run_program(program, environment=strict),
        run_program(program, "leak", environment=strict),
    )
    assert (clean.returncode, clean.stderr) == (0, "")
    assert leaking.returncode == 86
    said = "the program ended without aclFinalize: 1 block of device memory, 4 bytes, is still allocated: 0x"
    assert said in leaking.stderr


def test_a_finding_of_a_job_names_the_call_that_submitted_it(tmp_path: Path) -> None:
    _need_symbolizer()
    source = PROGRAMS / "faults" / "input_never_written.c"
    run = run_program(compile_program(source, tmp_path / "program", "-g"))
    line = next(line for line in run.stderr.splitlines() if "never written" in line)
    assert re.search(
        r" At \S*setup\.h:\d+ in gradient, called at \S*input_never_written\.c:\d+ in main\.", line
    )


GOES_ON = """
#include <setjmp.h>
#include <signal.h>
#include <string.h>
static sigjmp_buf before;
static void go_on(int number) { siglongjmp(before, number); }
static void wrong(void *block, unsigned size) {
    memset(block, 1, size);  /* line 9: a call of the C library, as the size is no constant */
}
int main(int argc, char **argv) {
    void *block = NULL;
    (void)argv;
    if (argc == 1) signal(SIGSEGV, go_on);
    if (aclInit(NULL) || aclrtSetDevice(0)) return 2;
    if (aclrtMalloc(&block, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST)) return 2;  /* line 16 */
    for (volatile int i = 0; i < 3; i++)
        if (sigsetjmp(before, 1) == 0) wrong(block, (argc + 7) << 9);  /* line 18 */
    if (aclrtFree(block)) return 2;
    return aclFinalize();
}
"""


def test_a_program_that_goes_on_after_it_touched_device_memory_has_a_finding(tmp_path: Path) -> None:
    _need_symbolizer()
    report = tmp_path / "report.json"
    program = _program(GOES_ON, tmp_path, "-g", "-fno-builtin")
    settings = {"POOLTIDE_CHECKS": "strict", "POOLTIDE_REPORT": str(report)}
    run = run_program(program, environment=settings)
    first, times, last = run.stderr.splitlines()
    place = rf" At {program}\.c:9 in wrong, called at {program}\.c:18 in main\."
    made = rf" The memory was taken at {program}\.c:16 in main\."
    assert re.fullmatch(rf"pooltide: the host wrote to device memory at 0x.*\.{place}{made}", first)
    assert times == first.replace("pooltide: ", "pooltide: 3 times: ")
    assert run.returncode == 86
    assert "the program has 1 finding and returns 0" in last
    (finding,) = json.loads(report.read_text())["findings"]
    assert finding["count"] == 3


def test_a_program_that_ends_at_device_memory_leaves_its_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    program = _program(GOES_ON, tmp_path, "-g", "-fno-builtin")
    run = run_program(program, "dies", environment={"POOLTIDE_REPORT": str(report)})
    assert run.returncode == -signal.SIGSEGV
    (finding,) = json.loads(report.read_text())["findings"]
    assert finding["message"].startswith("the host wrote to device memory at 0x")
