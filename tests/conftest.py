from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

import pytest

import pooltide
from browser import Browser
from pooltide import _native, acl
from pooltide.acl.findings import FINDINGS
from pooltide.acl.state import STATE
from pooltide.kernels.calls import CALLS
from pooltide.kernels.cuda.runtime import compiler, nvrtc
from pooltide.kernels.cuda.source import Source, headers, program

# Several processes of tests share the cores, so PyTorch's threads must not spin while they wait.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Tests name the kernel that computes, so no call may run on a general kernel meanwhile.
os.environ.setdefault("POOLTIDE_COMPILE", "wait")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a module that share a fixture run in one process, so that the fixture is made once."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        if any(fixture.scope == "module" for definitions in fixtures for fixture in definitions):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[None]:
    """Skips a test that patches forwards in a release of PyTorch that cannot: patch raises this sentence."""
    try:
        return (yield)
    except NotImplementedError as error:
        if re.match(r"patch: forward is True; it must be False with PyTorch 2\.[678]\.", str(error)):
            pytest.skip(str(error))
        raise


@pytest.fixture(autouse=True)
def independent() -> Iterator[None]:
    """A test starts with no call in the cache, and leaves the instruction set and the threads as they were."""
    CALLS.clear()
    isa, threads = _native.instruction_set(), pooltide.get_num_threads()
    yield
    _native.use_instruction_set(isa)
    pooltide.set_num_threads(threads)


@pytest.fixture(scope="session")
def compile_for_gpu() -> Callable[[Iterable[Source]], None]:
    """Compiles kernels with NVRTC, which needs no GPU; a test that needs it skips without NVRTC."""
    try:
        library = nvrtc.library()
    except compiler.NoCompiler as why:
        pytest.skip(str(why))

    def compile(sources: Iterable[Source]) -> None:
        for source in sources:
            nvrtc.compile_program(library, program(source), headers(), "sm_90")

    return compile


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def settings() -> Iterator[None]:
    """After the test, the runtime is ended, its settings are as they were, and its findings forgotten."""
    before = {name: getattr(STATE, name) for name in ("product", "chip", "checks", "edition", "devices")}
    yield
    acl.aclFinalize()
    acl.aclGetRecentErrMsg()
    FINDINGS.__init__()  # type: ignore[misc]
    for name, value in before.items():
        setattr(STATE, name, value)


@pytest.fixture
def runtime(settings: None) -> None:
    """A running runtime with the defaults, ended after the test."""
    assert acl.aclInit(None) == 0
    assert acl.aclrtSetDevice(0) == 0
