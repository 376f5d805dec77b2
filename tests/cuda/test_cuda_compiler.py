"""Compiling CUDA kernels at run time: the text, the argument's layout, the compiler's library, the cache on disk."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fake_driver
from pooltide.kernels.cuda.runtime import code_cache, compiler, nvrtc
from pooltide.kernels.cuda.runtime import driver as cuda_driver
from pooltide.kernels.cuda.source import Source, layout, packed, program

SCALE = Source(
    "scale.cu",
    "scale",
    (("const float*", "x"), ("float*", "out"), ("int", "n"), ("double", "factor"), ("unsigned", "last")),
    (("WIDTH", 4), ("Element", "float")),
)
HEADERS = {
    "device.h": "typedef Element Value;\n",
    "scale.cu": """extern "C" __global__ void scale(const Parameters p) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) p.out[i] = p.x[i] * (Value)p.factor + WIDTH;
}
""",
}


def test_the_program_is_defines_header_struct_and_file_in_this_order() -> None:
    text = program(SCALE)
    pieces = [
        "#define WIDTH 4\n", "#define Element float\n", '#include "device.h"\n',
        "struct Parameters {\n  const float* x;\n  float* out;\n  int n;\n  double factor;\n  unsigned last;\n};\n",
        "static_assert(sizeof(Parameters) == 40", '#include "scale.cu"\n',
    ]  # fmt: skip
    places = [text.index(piece) for piece in pieces]
    assert places == sorted(places)


def test_arguments_are_packed_as_c_lays_them_out() -> None:
    made = packed(SCALE, (-5, 0.25, 2**32 - 1))
    assert ctypes.sizeof(made) == 40
    assert SCALE.pointers == 2
    data = bytes(made)
    assert data[:16] == bytes(16)
    assert int.from_bytes(data[16:20], "little", signed=True) == -5
    assert ctypes.c_double.from_buffer_copy(data, 24).value == 0.25
    assert int.from_bytes(data[32:36], "little") == 2**32 - 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 2.0), "scale: 2 arguments are given; it must be 3."),
        ((2**31, 2.0, 0), f"scale: n is {2**31}; it must fit int."),
        ((0, 2.0, -1), "scale: last is -1; it must fit unsigned."),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        packed(SCALE, arguments)


def test_a_divider_is_three_words() -> None:
    source = Source("a.cu", "a", (("int*", "x"), ("int", "n"), ("Divider", "by"), ("i64", "far")))
    data = bytes(packed(source, (7, (5, 0xCCCCCCCD, 2), -1)))
    assert [int.from_bytes(data[at : at + 4], "little") for at in (8, 12, 16, 20)] == [7, 5, 0xCCCCCCCD, 2]
    assert data[24:] == b"\xff" * 8
    with pytest.raises(ValueError, match="it must fit Divider"):
        packed(source, (7, (2**32, 0, 0), 0))


def test_a_number_before_a_pointer_is_refused() -> None:
    with pytest.raises(AssertionError, match="before a pointer"):
        layout(Source("a.cu", "a", (("int", "n"), ("float*", "x"))))


class Driver(fake_driver.Driver):
    """Takes notes of launches. `codes` are what the launches return."""

    def __init__(self, codes: list[int] | None = None) -> None:
        super().__init__(self.launched)
        self.codes, self.launches, self.shared = list(codes or []), [], []

    def launched(self, config: fake_driver.Config, function: int, arguments: int) -> int:
        data = ctypes.string_at(arguments, ctypes.sizeof(layout(SCALE)))
        sizes = config.grid[0], config.block[0], config.shared, config.stream or 0
        assert (list(config.grid)[1:], list(config.block)[1:], config.count) == ([1, 1], [1, 1], 0)
        self.launches.append((function, *sizes, data))
        return self.codes.pop(0) if self.codes else 0

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> int:
        self.shared.append((function, attribute, value))
        return 0


def test_a_launcher_patches_the_addresses_and_nothing_else(monkeypatch: Any) -> None:
    driver = Driver()
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    run = cuda_driver.Kernel(SCALE, 0, 77).launcher(5, 128, 1000, (3, 0.5, 9))
    run(0, 11, 2**47 + 16)
    run(99, 13, 17)
    want = packed(SCALE, (3, 0.5, 9))
    for launch, (stream, x, out) in zip(driver.launches, [(0, 11, 2**47 + 16), (99, 13, 17)], strict=True):
        want.x, want.out = x, out
        assert launch == (77, 5, 128, 1000, stream, bytes(want))
    assert driver.shared == []


def test_a_thread_without_a_context_gets_one_and_the_launch_is_repeated(monkeypatch: Any) -> None:
    driver, bound = Driver([201, 0, 700]), []
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "bind", bound.append)
    run = cuda_driver.Kernel(SCALE, 3, 77).launcher(5, 128, 0, (3, 0.5, 9))
    run(0, 1, 2)
    assert bound == [3]
    assert len(driver.launches) == 2
    with pytest.raises(RuntimeError, match="scale: the CUDA driver refuses the launch with error 700"):
        run(0, 1, 2)


def test_threads_do_not_mix_their_arguments(monkeypatch: Any) -> None:
    driver = Driver()
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    run = cuda_driver.Kernel(SCALE, 0, 77).launcher(5, 128, 0, (3, 0.5, 9))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: [run(i, i, j) for j in range(200)], range(8)))
    assert len(driver.launches) == 1600
    assert all(stream == int.from_bytes(data[:8], "little") for *_, stream, data in driver.launches)


def test_more_than_48_kilobytes_of_shared_memory_are_asked_for_once(monkeypatch: Any) -> None:
    driver = Driver()
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    kernel = cuda_driver.Kernel(SCALE, 0, 77)
    for shared in (48 << 10, 100_000, 60_000, 100_001):
        kernel.launcher(1, 32, shared, (3, 0.5, 9))
    assert driver.shared == [(77, 8, 100_000), (77, 8, 100_001)]


def test_without_a_driver_the_reason_is_a_sentence(monkeypatch: Any) -> None:
    monkeypatch.setattr(cuda_driver, "_driver", lambda: None)
    cuda_driver._device.cache_clear()
    with pytest.raises(compiler.NoCompiler, match=r"libcuda\.so\.1"):
        cuda_driver.load_kernel(SCALE, 0, b"")
    assert cuda_driver.driver_version() == 0


def test_without_the_library_the_reason_names_what_was_tried(monkeypatch: Any) -> None:
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(["/nowhere/libnvrtc.so.12", "libnvrtc-none.so"]))
    with pytest.raises(compiler.NoCompiler) as raised:
        nvrtc.library.__wrapped__()
    for part in ("nvidia-cuda-nvrtc", "/nowhere/libnvrtc.so.12", "libnvrtc-none.so"):
        assert part in str(raised.value)


def test_the_builtins_beside_the_library_are_loaded_with_it() -> None:
    try:
        path = Path(nvrtc.library().path)
    except compiler.NoCompiler as why:
        pytest.skip(str(why))
    if not list(path.parent.glob("libnvrtc-builtins.so.*")):
        pytest.skip("the library is on the system's path")
    program = f"from pooltide.kernels.cuda.runtime import nvrtc; nvrtc._loaded({str(path)!r}); print(open('/proc/self/maps').read())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "libnvrtc-builtins.so" in done.stdout


def test_libraries_newer_than_the_driver_are_tried_last(monkeypatch: Any) -> None:
    tried = []

    def refuse(path: str) -> None:
        tried.append(path)
        raise OSError("no")

    names = ["a/libnvrtc.so.13", "a/libnvrtc.so.12", "libnvrtc.so"]
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(names))
    monkeypatch.setattr(nvrtc, "_loaded", refuse)
    monkeypatch.setattr(nvrtc, "driver_version", lambda: 12080)
    with pytest.raises(compiler.NoCompiler):
        nvrtc.library.__wrapped__()
    assert tried == [names[1], names[2], names[0]]


def test_the_library_is_found_beside_pytorch_but_not_its_builtins(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name in (
        "libnvrtc-672ee683.so.12",
        "libnvrtc-builtins.so.12.9",
        "libnvrtc.alt.so.12",
        "libnvrtc.so.12",
    ):
        (tmp_path / "lib" / name).touch()
    found = [Path(path).name for path in nvrtc._libraries(tmp_path, "lib")]
    assert found == ["libnvrtc-672ee683.so.12", "libnvrtc.so.12"]


@pytest.mark.parametrize(("capability", "want"), [(90, "sm_90"), (103, "compute_90"), (80, "sm_80")])
def test_devices_newer_than_the_library_get_ptx(capability: int, want: str) -> None:
    assert nvrtc.target(nvrtc.Library("x", None, (12, 4), (75, 80, 90)), capability) == want


def test_a_device_older_than_the_library_has_no_compiler() -> None:
    with pytest.raises(compiler.NoCompiler, match=r"75 and higher; the device has 70\."):
        nvrtc.target(nvrtc.Library("x", None, (13, 0), (75, 80)), 70)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.setenv("POOLTIDE_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_the_cache_gives_back_what_was_stored(cache: Path) -> None:
    assert code_cache.load("a") is None
    code_cache.store("a", b"code")
    assert code_cache.load("a") == b"code"


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:40] + b"?" + b[41:], lambda b: b + b"x"]
)
def test_a_damaged_file_counts_as_missing(cache: Path, damage: Any) -> None:
    code_cache.store("a", b"some machine code")
    path = cache / "a.cubin"
    path.write_bytes(damage(path.read_bytes()))
    assert code_cache.load("a") is None
    code_cache.store("a", b"again")
    assert code_cache.load("a") == b"again"


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("POOLTIDE_CACHE", str(tmp_path / "file" / "below"))
    code_cache.store("a", b"code")
    assert code_cache.load("a") is None


def test_the_cache_stays_below_its_limit_and_deletes_only_its_own_files(
    cache: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(code_cache, "MOST_BYTES", 1000)
    code_cache.store("first", bytes(400))
    (cache / "mine.txt").write_bytes(bytes(5000))
    code_cache.store("second", bytes(400))
    os.utime(cache / "first.cubin", (1, 1))
    os.utime(cache / "second.cubin", (2, 2))
    assert code_cache.load("first") is not None  # it is now the more recently used one
    code_cache.store("third", bytes(400))
    assert sorted(path.name for path in cache.iterdir()) == ["first.cubin", "mine.txt", "third.cubin"]


def test_processes_that_store_at_once_never_read_a_part(cache: Path) -> None:
    code = """
from pooltide.kernels.cuda.runtime import code_cache
for i in range(300):
    found = code_cache.load("a")
    assert found in (None, b"x" * 100_000), "a part of a file was read"
    code_cache.store("a", b"x" * 100_000)
"""
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert [path.name for path in cache.iterdir()] == ["a.cubin"]


def test_the_cache_is_where_the_environment_says(monkeypatch: Any) -> None:
    monkeypatch.delenv("POOLTIDE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert code_cache.folder() == Path("/x/pooltide")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/a")
    assert code_cache.folder() == Path("/home/a/.cache/pooltide")


class Compiler:
    """In place of NVRTC: counts, and returns the text."""

    def __init__(self, monkeypatch: Any, headers: dict[str, str]) -> None:
        self.calls = 0
        library = nvrtc.Library("x", None, (12, 9), (90,))
        monkeypatch.setattr(nvrtc, "library", lambda: library)
        monkeypatch.setattr(nvrtc, "compile_program", self.compile)
        self.use(monkeypatch, headers)

    def use(self, monkeypatch: Any, headers: dict[str, str]) -> None:
        monkeypatch.setattr(compiler, "headers", lambda: headers)
        monkeypatch.setattr(compiler, "header_texts", lambda: str(headers))

    def compile(self, library: Any, text: str, headers: Any, target: str) -> tuple[bytes, str]:
        self.calls += 1
        return f"{target} {text}".encode(), ""


def test_a_program_is_compiled_once_until_something_changes(cache: Path, monkeypatch: Any) -> None:
    made = Compiler(monkeypatch, HEADERS)
    first = compiler.code_for(SCALE, 90)
    assert compiler.code_for(SCALE, 90) == first
    assert made.calls == 1
    other = Source(SCALE.file, SCALE.entry, SCALE.parameters, (("WIDTH", 5),))
    assert compiler.code_for(other, 90) != first
    assert made.calls == 2
    made.use(monkeypatch, HEADERS | {"device.h": "typedef double Value;\n"})
    compiler.code_for(SCALE, 90)
    assert made.calls == 3
    monkeypatch.setattr(compiler, "driver_version", lambda: 13000)
    compiler.code_for(SCALE, 90)
    assert made.calls == 4
    compiler.code_for(SCALE, 100)
    assert made.calls == 5


@pytest.fixture(scope="module")
def library() -> nvrtc.Library:
    try:
        return nvrtc.library()
    except compiler.NoCompiler as why:
        pytest.skip(str(why))


def test_nvrtc_compiles_without_a_gpu(library: nvrtc.Library) -> None:
    code, log = nvrtc.compile_program(library, program(SCALE), HEADERS, "sm_90", "--ptxas-options=-v")
    assert code[:4] == b"\x7fELF"
    assert b"scale" in code
    assert "registers" in log
    ptx, _ = nvrtc.compile_program(library, program(SCALE), HEADERS, "compute_90")
    assert b".entry scale" in ptx
    assert b"fma" not in ptx


def test_an_error_of_the_compiler_is_one_sentence_with_its_place(library: nvrtc.Library) -> None:
    bad = HEADERS | {"scale.cu": "\n__global__ void scale(const Parameters p) { p.missing = 1; }\n"}
    with pytest.raises(compiler.NoCompiler, match=r'scale\.cu\(2\): error: .* "missing"'):
        nvrtc.compile_program(library, program(SCALE), bad, "sm_90")
