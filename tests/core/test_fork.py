"""fork() in a Python program with threads: the child's calls work, or fail with a status, at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Calls of every kind, of plain arrays and of a subclass, good and bad.
CALLS = """
def calls():
    x = np.arange(2 * 3 * 8 * 12, dtype=np.float32).reshape(2, 3, 8, 12)
    y, indices = pooltide.max_pool2d(x, 2, return_indices=True)
    pooltide.max_pool2d_backward(y, x, indices, 2)
    pooltide.adaptive_max_pool3d_backward(y[:, :, None], (2, 3, 1, 8, 12), indices[:, :, None])
    pooltide.avg_pool2d_backward(y.astype(np.float16), x.shape, 2)
    pooltide.adaptive_avg_pool3d_backward(y.view(np.memmap), x, out=np.empty_like(x))
    pooltide.avg_pool1d(x[0], 3, 2, 1)
    for bad in (x[:, :2], x.tolist(), None):
        try:
            pooltide.avg_pool2d_backward(y, bad, 2)
        except (TypeError, ValueError):
            pass
"""

NO_IMPORTS = """
import sys
import numpy as np
import pooltide
before = set(sys.modules)
calls()
print(*sorted(set(sys.modules) - before))
"""

# Every import that is made while the other thread is in its first call takes long; meanwhile we fork.
DURING_THE_FIRST_CALL = """
import importlib.abc, os, signal, sys, threading, time
import numpy as np
import pooltide
importing = threading.Event()
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        importing.set()
        time.sleep(1)
sys.meta_path.insert(0, Slow())
first = threading.Thread(target=calls)
first.start()
importing.wait(0.3)
child = os.fork()
if child == 0:
    signal.alarm(20)
    calls()
    os._exit(0)
first.join()
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

# Threads change everything that has a lock, all the time; children then use what they inherit.
BUSY_RUNTIME = """
import os, signal, sys, threading
import numpy as np
from pooltide import acl, aclnn
acl.aclInit(None)
stop = threading.Event()
tensor = lambda *shape: acl.tensor_from_numpy(np.ones(shape, np.float32), acl.ACL_FORMAT_NCHW)
grad, out = tensor(1, 2, 64, 64), tensor(1, 2, 128, 128)
kernel, padding = acl.aclCreateIntArray([2]), acl.aclCreateIntArray([0])
stream, _ = acl.aclrtCreateStream()
def compute(on):
    arguments = grad, out, kernel, kernel, padding, False, True, 0, 0, out
    size, executor, status = aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(*arguments)
    return status or aclnn.aclnnAvgPool2dBackward(None, size, executor, on) or acl.aclrtSynchronizeStream(on)
def work():
    while not stop.is_set():
        acl.aclrtFree(acl.aclrtMalloc(64, 0)[0])
        acl.aclrtDestroyStream(acl.aclrtCreateStream()[0])
        compute(stream)
workers = [threading.Thread(target=work) for _ in range(4)]
for worker in workers:
    worker.start()
ends = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        refused = acl.aclrtSynchronizeStream(stream)
        assert refused and acl.aclInit(None) == 0 == acl.aclrtSetDevice(0)
        assert acl.aclrtSynchronizeStream(stream) and acl.aclrtDestroyStream(stream)
        assert compute(None), "the memory is the parent's"
        block, _ = acl.aclrtMalloc(64, 0)
        assert acl.aclrtSynchronizeStream(None) == 0 == acl.aclrtFree(block)
        grad, out = tensor(1, 2, 64, 64), tensor(1, 2, 128, 128)
        assert compute(None) == 0 and acl.tensor_to_numpy(out)[0, 0, 0, 0] == 0.25
        os._exit(acl.aclFinalize())
    ends.append(os.waitpid(child, 0)[1])
stop.set()
for worker in workers:
    worker.join()
assert not any(ends), ends
assert compute(stream) == 0 == acl.aclrtDestroyStream(stream) == acl.aclFinalize()
"""


def run(program: str) -> str:
    environment = os.environ | {"POOLTIDE_CHECKS": "strict"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CALLS + program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_call_imports_a_module() -> None:
    """If a thread imports a module during the fork, the child waits for the end of that import for ever."""
    assert run(NO_IMPORTS) == "\n"


def test_fork_while_another_thread_makes_its_first_call() -> None:
    run(DURING_THE_FIRST_CALL)


@pytest.mark.parametrize("again", range(2))
def test_fork_of_a_busy_runtime(again: int) -> None:
    run(BUSY_RUNTIME)
