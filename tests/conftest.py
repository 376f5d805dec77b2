from __future__ import annotations

from collections.abc import Iterator

import pytest

import pooltide
from pooltide import _native, acl
from pooltide.kernels.calls import CALLS


@pytest.fixture(autouse=True)
def independent() -> Iterator[None]:
    """A test starts with no call in the cache, and leaves the instruction set and the threads as they were."""
    CALLS.clear()
    isa, threads = _native.instruction_set(), pooltide.get_num_threads()
    yield
    _native.use_instruction_set(isa)
    pooltide.set_num_threads(threads)


@pytest.fixture
def runtime() -> Iterator[None]:
    """A running runtime with the defaults, ended after the test."""
    product, checks = acl.get_product(), acl.get_checks()
    assert acl.aclInit(None) == 0
    assert acl.aclrtSetDevice(0) == 0
    yield
    acl.aclFinalize()
    acl.aclGetRecentErrMsg()
    acl.set_product(product)
    acl.set_checks(checks)
