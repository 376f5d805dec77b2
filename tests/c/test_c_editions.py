"""The include lines, -l flags, dlopen names and build files of CANN 6.3 to 9.2 work unchanged."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from c_programs import POOLTIDE, need_compiler, run_program
from paths import PROGRAMS
from pooltide.c.build import install
from pooltide.c.generate import headers, other_names
from pooltide.c.signatures import functions
from pooltide.operators.catalog import documented
from shares import fast_first

RUNTIME_HEADERS = (
    *(
        "acl/acl.h",
        "acl/acl_base.h",
        "acl/acl_rt.h",
        "acl/acl_rt_api.h",
        "aclnn/acl_meta.h",
        "aclnn/aclnn_base.h",
    ),
    *("acl/acl_op.h", "acl/acl_mdl.h", "acl/acl_op_compiler.h", "acl/acl_prof.h", "acl/acl_tdt.h"),
    "acl/ops/acl_dvpp.h",
)
# -l flags of each edition.
EDITIONS = {
    "6.3": "-lascendcl -lnnopbase -lopapi",
    "8.3": "-lascendcl -lnnopbase -lopapi -lacl_op_compiler",
    "9.0": "-lacl_rt -lnnopbase -lopapi_nn -lopapi_math -lopapi_cv -lopapi_transformer",
    "9.2": "-lacl_rt -lnnopbase -lopapi_nn -lacl_mdl -lacl_op_executor -lacl_op_compiler -lmsprofiler",
}


ALIAS = re.compile(
    r"/\*[^*]*\*/\n#ifndef (\w+)\n#define \1\n\n#include \"[^\"]+\"\n\n#endif\n"
)  # the text of a header that is another name of one header


@cache
def _prefix() -> Path:
    done = subprocess.run([POOLTIDE, "cflags", "--prefix"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_every_header_compiles_alone_and_twice(compiler: str, tmp_path: Path) -> None:
    """A header that is only another name includes one header; one program includes all names."""
    need_compiler(compiler)
    assert set(RUNTIME_HEADERS) <= set(headers())
    standard, ending = ("-std=c99", "c") if compiler == "gcc" else ("-std=c++11", "cpp")
    names = [path for path, text in headers().items() if ALIAS.fullmatch(text)]
    alone = [path for path in headers() if path not in names]
    assert len(names) > len(alone) > len(documented())
    sources = []
    for at, paths in enumerate([*([path] for path in alone), names]):
        sources.append(tmp_path / f"program{at}.{ending}")
        includes = "".join(f'#include "{path}"\n#include <{path}>\n' for path in paths)
        sources[-1].write_text(f"{includes}int main(void) {{ return ACL_SUCCESS; }}\n")
    warnings = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only")
    command = [compiler, standard, *warnings, f"-I{_root() / 'include'}", *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (alone, done.stderr)


def _root() -> Path:
    return install().root


def test_each_operator_has_the_names_of_its_header() -> None:
    made = headers()
    for operator in documented().values():
        file = operator.header.removeprefix("aclnnop/")
        assert f"aclnnop/level2/{file}" in made
        assert f'#include "../{operator.header}"' in made["aclnnop/aclnn_ops_nn.h"]
        if "aclnn_avgpool" in file:
            assert f"aclnnop/{file.replace('avgpool', 'avg_pool')}" in made
    assert other_names("aclnnop/aclnn_avg_pool3d.h") == {
        *(
            "aclnnop/aclnn_avgpool3d.h",
            "aclnnop/level2/aclnn_avgpool3d.h",
            "aclnnop/level2/aclnn_avg_pool3d.h",
        )
    }
    adaptive = "aclnn_adaptive_avg_pool2d.h"
    assert other_names(f"aclnnop/{adaptive}") == {f"aclnnop/level2/{adaptive}"}


def test_a_header_by_its_name_alone_where_its_folder_is_on_the_path(tmp_path: Path) -> None:
    """ggml adds include/aclnn to the search path."""
    need_compiler("g++")
    source = tmp_path / "program.cpp"
    source.write_text(
        "#include <acl_meta.h>\n#include <aclnn_base.h>\nint main() { return aclnnInit(nullptr); }\n"
    )
    command = ["g++", "-fsyntax-only", f"-I{_root() / 'include' / 'aclnn'}", str(source)]
    subprocess.run(command, check=True)


OVERLOAD = """
#include <acl/acl_rt_api.h>
int main() {
    aclrtStream first = nullptr, second = nullptr;
    if (aclInit(nullptr) || aclrtSetDevice(0) || aclrtCreateStream(&first)) return 1;
    if (aclrtCreateStream(&second, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC)) return 1;
    ACL_APP_LOG(ACL_INFO, "two %s", "streams");
    ACL_APP_LOG(ACL_ERROR, "done");
    return aclrtDestroyStream(first) || aclrtDestroyStream(second) || aclFinalize();
}
"""


@pytest.mark.parametrize("edition", fast_first(EDITIONS))
def test_the_flags_of_an_edition(edition: str, tmp_path: Path) -> None:
    need_compiler("g++")
    source, program, prefix = tmp_path / "program.cpp", tmp_path / "program", _prefix()
    source.write_text(OVERLOAD)
    flags = [f"-I{prefix / 'include'}", f"-L{prefix / 'lib64'}", f"-Wl,-rpath,{prefix / 'lib64'}"]
    subprocess.run(
        ["g++", "-Wall", "-Werror", str(source), "-o", str(program), *flags, *EDITIONS[edition].split()],
        check=True,
    )
    run = run_program(program)
    assert run.returncode == 0, run.stderr
    assert re.fullmatch(
        r"pooltide: \[INFO\] \S+program.cpp:7 main: two streams\n"
        r"pooltide: \[ERROR\] \S+program.cpp:8 main: done\n",
        run.stderr,
    )


def test_the_folders_of_older_toolkits(tmp_path: Path) -> None:
    """Build files set DDK_PATH and NPU_HOST_LIB, and add folders below them."""
    need_compiler("g++")
    source, program, ddk = tmp_path / "program.cpp", tmp_path / "program", _prefix()
    source.write_text("#include <acl/acl.h>\nint main() { return aclInit(nullptr) || aclFinalize(); }\n")
    for part in ("runtime", "acllib"):
        library = ddk / part / "lib64" / "stub"
        flags = [f"-I{ddk / part / 'include'}", f"-L{library}", f"-Wl,-rpath,{library}", "-lascendcl"]
        subprocess.run(["g++", str(source), "-o", str(program), *flags], check=True)
        assert run_program(program).returncode == 0


@pytest.mark.parametrize(
    "name", ["libascendcl.so", "libnnopbase.so", "libopapi.so", "libacl_rt.so", "libopapi_nn.so"]
)
def test_dlopen_finds_every_function(name: str) -> None:
    library = ctypes.CDLL(str(_prefix() / "lib64" / name))
    assert [f.name for f in functions() if not hasattr(library, f.name)] == []


def test_halves_are_converted_as_numpy_does(tmp_path: Path) -> None:
    """All 65536 halves, and floats at, below and above every tie."""
    code = """
import ctypes, sys
import numpy as np
library = ctypes.CDLL(sys.argv[1])
to_float, to_half = library.aclFloat16ToFloat, library.aclFloatToFloat16
to_float.restype, to_float.argtypes = ctypes.c_float, [ctypes.c_uint16]
to_half.restype, to_half.argtypes = ctypes.c_uint16, [ctypes.c_float]
halves = np.arange(65536, dtype=np.uint16)
want = halves.view(np.float16).astype(np.float32)
got = np.array([to_float(int(h)) for h in halves], np.float32)
assert np.array_equal(got, want, equal_nan=True) and (np.signbit(got) == np.signbit(want)).all()
finite = want[np.isfinite(want)]
ties = np.unique((finite.astype(np.float64)[:, None] + np.spacing(finite.astype(np.float16)).astype(np.float64)[:, None] / 2).astype(np.float32))
floats = np.concatenate([want, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf)),
                         np.float32([1e-45, -1e-45, 65519.996, 65520, 1e30, -1e30])])
with np.errstate(all="ignore"):
    expected = floats.astype(np.float16)
result = np.array([to_half(float(f)) for f in floats], np.uint16).view(np.float16)
assert np.array_equal(result, expected, equal_nan=True)
assert (np.signbit(result) == np.signbit(expected))[~np.isnan(floats)].all()
"""
    library = str(install().lib / "libascendcl.so")
    done = subprocess.run([sys.executable, "-c", code, library], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


NULLS = """
import ctypes, sys
from pooltide.c.signatures import functions
library = ctypes.CDLL(sys.argv[1])
library.aclGetRecentErrMsg.restype = ctypes.c_char_p
assert library.aclInit(None) == 0 == library.aclrtSetDevice(0)
message = lambda: (library.aclGetRecentErrMsg() or b"").decode()
room = (ctypes.c_uint64 * 64)()
checked = 0
for function in functions():
    if function.native or function.name in ("aclInit", "aclFinalize", "aclrtResetDevice", "aclGetRecentErrMsg"):
        continue
    call = getattr(library, function.name)
    call.restype = ctypes.c_int if function.result == "i" else ctypes.c_void_p
    none = [ctypes.c_float(0) if p.type == "float" else ctypes.c_void_p(None) for p in function.parameters]
    call(*none)  # must return
    message()
    for parameter in function.parameters:
        if not parameter.out:
            continue
        # All other arguments are 0, or memory for a result.
        given = [ctypes.c_void_p(ctypes.addressof(room)) if p.out and p is not parameter else nothing
                 for p, nothing in zip(function.parameters, none)]
        status, text = call(*given), message()
        wanted = 100000 if function.returns == "aclError" else 161001
        assert status == wanted, (function.name, parameter.name, status, text)
        assert text.startswith(f"{function.name}: {parameter.name} is null; it must point to memory"), text
        checked += 1
print(checked)
"""


def test_a_null_pointer_for_any_result_of_any_function_is_named() -> None:
    library = str(install().lib / "libascendcl.so")
    done = subprocess.run([sys.executable, "-c", NULLS, library], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 80


# A build file as CANN's samples have it: the path of CANN is a variable, and the rest is fixed.
CMAKELISTS = """
cmake_minimum_required(VERSION 3.14)
project(ACLNN_EXAMPLE)
add_compile_options(-std=c++11)
if(NOT "$ENV{ASCEND_CUSTOM_PATH}" STREQUAL "")
    set(ASCEND_PATH $ENV{ASCEND_CUSTOM_PATH})
else()
    set(ASCEND_PATH "/usr/local/Ascend/ascend-toolkit/latest")
endif()
set(INCLUDE_BASE_DIR "${ASCEND_PATH}/include")
include_directories(${INCLUDE_BASE_DIR} ${INCLUDE_BASE_DIR}/aclnn)
add_executable(opapi_test program.cpp)
target_link_libraries(opapi_test PRIVATE
    ${ASCEND_PATH}/lib64/libascendcl.so
    ${ASCEND_PATH}/lib64/libnnopbase.so
    ${ASCEND_PATH}/lib64/libopapi.so)
install(TARGETS opapi_test DESTINATION ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
"""


@pytest.mark.slow
def test_a_build_file_for_cann_builds_unchanged(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed: build files are NOT tested")
    (tmp_path / "CMakeLists.txt").write_text(CMAKELISTS)
    shutil.copy(PROGRAMS / "round_trip.cpp", tmp_path / "program.cpp")
    build, environment = tmp_path / "build", {"ASCEND_CUSTOM_PATH": str(_prefix()), "PATH": "/usr/bin:/bin"}
    configure = ["cmake", "-S", str(tmp_path), "-B", str(build), "-DCMAKE_RUNTIME_OUTPUT_DIRECTORY=out"]
    for command in (configure, ["cmake", "--build", str(build)]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    run = run_program(build / "out" / "opapi_test")
    assert run.returncode == 0, run.stderr
