"""`pooltide golden`: what it writes is right, whole, and goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from commandline import PROGRAM, pooltide
from pooltide.acceptance.golden import Task, files_in, make
from pooltide.acceptance.manifest import read_manifest
from pooltide.acceptance.manifest_entry import first_change

CASES = """\
name,case
stem,avg2d:2x3x11x13:k3x5:s2:p1:ceil:f32:seed1
halves,avg2d:2x3x11x13:k3:nopad:f16:seed2
volume,adaptive_avg3d:2x3x5x7x11:o3x4x5:bf16:seed3
peaks,adaptive_max2d:2x3x11x13:o5x3:f32:i64:nan:inf:seed4
plain,adaptive_max3d:3x5x7x11:o2x3x5:f64:anywhere:seed5
hf32,avg2d:2x3x7x5:k7x5:cube1:f32:atlas-a2:seed6
"""


def entries(directory: Path, unfinished: bool = False) -> dict[str, Any]:
    found = read_manifest(directory, unfinished=unfinished)
    return {name: found.get(name) for name in found.offsets}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    (directory / "cases.csv").write_text(CASES)
    pooltide("golden", "cases.csv", "-o", "out", "--float64", cwd=directory)
    return directory / "out"


def test_the_manifest_describes_every_file(golden: Path) -> None:
    found = entries(golden)
    assert list(found) == ["stem", "halves", "volume", "peaks", "plain", "hf32"]
    files = set()
    for name, entry in found.items():
        for role, about in entry["files"].items():
            for suffix, digest in about["sha256"].items():
                path = golden / name / f"{role}.{suffix}"
                assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
                files.add(path)
            raw = (golden / name / f"{role}.bin").read_bytes()
            array = np.load(golden / name / f"{role}.npy", allow_pickle=False)
            assert array.tobytes() == raw
            assert list(array.shape) == about["shape"]
    assert files == {path for path in golden.rglob("*.*") if path.parent != golden}
    assert found["stem"]["seed"] == 1
    assert found["hf32"]["rounding"] == "HFLOAT32"
    assert found["peaks"]["files"]["indices"]["dtype"] == "INT64"


def test_the_golden_result_is_torchs_in_float64(golden: Path) -> None:
    grad = torch.from_numpy(np.load(golden / "stem/grad_output.npy")).double()
    x = torch.zeros(2, 3, 11, 13, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.avg_pool2d(x, (3, 5), 2, 1, ceil_mode=True).backward(grad)
    assert x.grad is not None
    np.testing.assert_allclose(np.load(golden / "stem/grad_input_float64.npy"), x.grad.numpy(), rtol=1e-13)
    assert np.array_equal(np.load(golden / "stem/grad_input.npy"), x.grad.float().numpy())

    words = np.fromfile(golden / "volume/grad_output.bin", ml_dtypes.bfloat16).astype(np.float64)
    x = torch.zeros(2, 3, 5, 7, 11, dtype=torch.float64, requires_grad=True)
    out = torch.nn.functional.adaptive_avg_pool3d(x, (3, 4, 5))
    out.backward(torch.from_numpy(words).reshape(out.shape))
    assert x.grad is not None
    wide = np.load(golden / "volume/grad_input_float64.npy")
    np.testing.assert_allclose(wide, x.grad.numpy(), rtol=1e-12, atol=1e-15)


def test_scattered_results_are_sums_by_index(golden: Path) -> None:
    grad, index, result = (
        np.load(golden / f"plain/{role}.npy") for role in ("grad_output", "indices", "grad_input")
    )
    must = np.zeros((3, 5 * 7 * 11))
    for plane in range(3):
        for q, at in enumerate(index[plane].ravel()):
            must[plane, at] += grad[plane].ravel()[q]
    assert np.array_equal(result, must.reshape(result.shape))


def test_bytes_are_the_same_with_any_number_of_jobs(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(CASES)
    pooltide("golden", tmp_path / "cases.csv", "-o", tmp_path / "one", "--jobs", 1, "--float64")
    assert (tmp_path / "one/manifest.jsonl").read_bytes() == (golden / "manifest.jsonl").read_bytes()


def test_json_lines_give_the_same(golden: Path, tmp_path: Path) -> None:
    rows = [line.split(",") for line in CASES.splitlines()[1:]]
    text = "\n" + "\n".join(json.dumps({"name": name, "case": case}) for name, case in rows)
    (tmp_path / "cases.jsonl").write_text(text)
    pooltide("golden", tmp_path / "cases.jsonl", "-o", tmp_path / "out", "--float64")
    assert (tmp_path / "out/manifest.jsonl").read_bytes() == (golden / "manifest.jsonl").read_bytes()


def test_a_bad_case_is_reported_with_its_line_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(
        "avg2d:2x3x11x13:k3\navg2d:2x3x11x13:k3:p2\nrubbish\nadaptive_max2d:2x3x5:o2\n"
    )
    text = pooltide("golden", "cases.csv", "-o", "out", cwd=tmp_path, rc=1)
    assert "line 2 (case-000002): avg_pool2d_backward: padding is 2 on axis H" in text
    assert "reproduce: pooltide run avg2d:2x3x11x13:k3:p2:f32" in text
    assert "line 3 (case-000003): case 'rubbish': the operator is 'rubbish'" in text
    assert "2 of 4 cases, 2 bad" in text
    assert list(entries(tmp_path / "out")) == ["case-000001", "case-000004"]


def test_what_is_there_is_kept_and_what_is_broken_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text(CASES)
    out = tmp_path / "out"
    pooltide("golden", tmp_path / "cases.csv", "-o", out)
    before = (out / "manifest.jsonl").read_bytes()
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")}
    broken = [out / "stem/grad_input.npy", out / "peaks/indices.npy"]
    broken[0].write_bytes(broken[0].read_bytes()[:-7])  # half-written
    broken[1].unlink()
    (out / "volume/grad_input.bin").write_bytes(b"x" * (out / "volume/grad_input.bin").stat().st_size)
    manifest = before.splitlines(keepends=True)
    (out / "manifest.jsonl").write_bytes(b"".join(manifest[:-1]) + manifest[-1][:20])  # cut while written
    (out / ".partial/hf32.1").mkdir(parents=True)
    text = pooltide("golden", tmp_path / "cases.csv", "-o", out)
    assert "6 of 6 cases, 0 bad" in text
    assert (out / "manifest.jsonl").read_bytes() == before
    assert not (out / ".partial").exists()
    again = {path.parent.name for path in out.rglob("*.npy") if path.stat().st_mtime_ns != times[path]}
    assert again == {"stem", "peaks", "volume", "hf32"}
    assert not any(first_change(files_in(out), entry) for entry in entries(out).values())


def test_another_case_under_the_same_name_is_made_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for seed in (1, 2):
        (tmp_path / "cases.csv").write_text(f"name,case\na,avg2d:2x3x11x13:k3:seed{seed}\n")
        pooltide("golden", tmp_path / "cases.csv", "-o", out)
        assert entries(out)["a"]["seed"] == seed


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.slow
def test_interrupted_it_leaves_nothing_broken_and_goes_on(how: signal.Signals, tmp_path: Path) -> None:
    count = 120
    cases = [f"avg2d:4x8x37x41:k3:s1:p1:seed{i}" for i in range(count)]
    (tmp_path / "cases.csv").write_text("\n".join(cases))
    out = tmp_path / "out"
    process = subprocess.Popen(
        [PROGRAM, "golden", tmp_path / "cases.csv", "-o", out, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    manifest = out / "manifest.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (manifest.exists() and manifest.read_bytes().count(b"\n") > 20):
        time.sleep(0.01)
    os.kill(process.pid, how)
    text, _ = process.communicate(timeout=60)
    done = entries(out, unfinished=True)
    assert 20 <= len(done) < count
    assert not any(first_change(files_in(out), entry) for entry in done.values())
    if how != signal.SIGKILL:
        assert process.returncode == 1
        assert "interrupted; start it again to go on" in text
        assert "Traceback" not in text
        assert not (out / ".partial").exists()
    names = set(done)
    times = {name: (out / name / "grad_input.npy").stat().st_mtime_ns for name in names}
    assert f"{count} of {count} cases, 0 bad" in pooltide("golden", tmp_path / "cases.csv", "-o", out)
    assert all((out / name / "grad_input.npy").stat().st_mtime_ns == at for name, at in times.items())
    assert len(entries(out)) == count


def alive(pid: str) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_worker_whose_parent_is_gone_goes_too(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("\n".join(f"avg2d:4x8x37x41:k3:s1:p1:seed{i}" for i in range(4000)))
    process = subprocess.Popen(
        [PROGRAM, "golden", tmp_path / "cases.csv", "-o", tmp_path / "out", "--jobs", "2"]
    )
    manifest = tmp_path / "out/manifest.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (manifest.exists() and manifest.stat().st_size > 1000):
        time.sleep(0.01)
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    workers = [pid for task in tasks for pid in task.read_text().split()]
    process.kill()
    process.wait()
    while time.monotonic() < deadline and any(map(alive, workers)):
        time.sleep(0.1)
    assert len(workers) == 2
    assert not [pid for pid in workers if alive(pid)]


def test_a_full_disk_is_a_message(tmp_path: Path) -> None:
    """A limit of 6 KiB on the size of a file takes the place of a full disk: cases fit, the manifest does not."""
    (tmp_path / "cases.csv").write_text("\n".join(f"avg2d:2x3x5x7:k3:seed{i}" for i in range(40)))
    script = f"ulimit -f 6; exec {PROGRAM} golden {tmp_path}/cases.csv -o {tmp_path}/out --jobs 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("File too large") == 1
    assert f"{tmp_path}/out: can't be written: File too large" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    kept = entries(tmp_path / "out", unfinished=True)
    assert 0 < len(kept) < 40
    assert not any(first_change(files_in(tmp_path / "out"), entry) for entry in kept.values())
    pooltide("golden", tmp_path / "cases.csv", "-o", tmp_path / "out")
    assert len(entries(tmp_path / "out")) == 40


def test_a_terminal_gets_a_progress_bar(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("\n".join(f"avg2d:2x3x5x7:k3:seed{i}" for i in range(5)))
    command = [PROGRAM, "golden", tmp_path / "cases.csv", "-o", tmp_path / "out", "--jobs", "2"]
    shown, terminal = pty.openpty()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, text=True, check=True)
    os.close(terminal)
    drawn = b""
    with suppress(OSError):  # how a terminal without a writer says that it is empty
        while part := os.read(shown, 4096):
            drawn += part
    os.close(shown)
    assert b"5/5" in drawn
    assert "\x1b" not in done.stdout


def test_a_case_that_is_too_large_is_an_answer(tmp_path: Path) -> None:
    made = make(Task(1, "large", "adaptive_max2d:1x1x1000000x10000000:o1x1:f32:i32"), tmp_path)
    assert made.entry is None
    assert "GiB" in made.error


@pytest.mark.slow
def test_a_thousand_small_cases(tmp_path: Path) -> None:
    lines = []
    for i in range(250):
        dtype = ("f32", "f16", "bf16")[i % 3]
        lines += [
            f"avg2d:2x5x17x19:k3x2:s2:p1:{dtype}:seed{i}",
            f"adaptive_avg3d:2x3x7x11x13:o2x3x5:{dtype}:seed{i}",
            f"adaptive_max2d:2x5x17x11:o3x5:{dtype}:i64:seed{i}",
            f"adaptive_max3d:2x3x7x11x13:o3x2x5:{dtype}:seed{i}",
        ]
    (tmp_path / "cases.csv").write_text("\n".join(lines))
    text = pooltide("golden", tmp_path / "cases.csv", "-o", tmp_path / "out", "--jobs", 2)
    assert "1000 of 1000 cases, 0 bad" in text


def test_the_golden_output_of_a_forward_is_torchs(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text(
        "name,case\na,avg3d_forward:2x3x5x7x11:k3x2x3:s2:p1:nopad:f32\nm,max2d_forward:2x3x11x13:k3:s2:p1:d2:f32:i64:nan\n"
        "v,adaptive_avg2d_forward:2x3x11x13:o4x5:f64:input.s858x286x26x2:input.off3\n"
    )
    pooltide("golden", "cases", "-o", "out", "--float64", cwd=tmp_path)

    def load(name: str) -> torch.Tensor:
        return torch.from_numpy(np.load(tmp_path / "out" / f"{name}.npy"))

    f = torch.nn.functional
    x = load("a/input")
    must = f.avg_pool3d(x.double(), (3, 2, 3), 2, 1, count_include_pad=False)
    np.testing.assert_allclose(load("a/output_float64"), must, rtol=1e-13, atol=1e-15)
    assert torch.equal(load("a/output"), must.float())
    values, places = f.max_pool2d(load("m/input"), 3, 2, 1, 2, return_indices=True)
    np.testing.assert_array_equal(load("m/output"), values)
    assert torch.equal(load("m/indices"), places)
    np.testing.assert_allclose(load("v/output"), f.adaptive_avg_pool2d(load("v/input"), (4, 5)), rtol=1e-13)
