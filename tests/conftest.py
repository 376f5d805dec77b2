from __future__ import annotations

from collections.abc import Iterator

import pytest

from pooltide import acl
from pooltide.kernels.calls import CALLS


@pytest.fixture(autouse=True)
def no_known_calls() -> None:
    """A test starts with no call in the cache, so it does not depend on the tests before it."""
    CALLS.clear()


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
