#!/usr/bin/env python3
"""Times calls of CANN's interface from Python, with this install and with others beside it.

    python tools/aclnn_calls.py [--checks warn] [--rounds 7] [FOLDER ...]

A call is both phases and the wait, of a gradient of self (2, 3, 8, 8); with a repeatable executor, phase two
and the wait. Prints the least processor time of a call, in µs, of rounds of 1000 calls; the installs take
turns. FOLDER is another install:
`pip install --no-deps --target FOLDER .` makes one of another state of the source.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from time import process_time
from typing import Any

CALLS = 1000


def round_of_calls(checks: str) -> dict[str, float]:
    """µs of each operator's call in the install that this process imports."""
    import numpy as np

    from pooltide import acl, aclnn

    acl.aclInit(None)
    acl.aclrtSetDevice(0)
    acl.set_checks(checks)
    random = np.random.default_rng(1)
    grad = acl.tensor_from_numpy(random.standard_normal((2, 3, 4, 4), np.float32), acl.ACL_FORMAT_NCHW)
    x = acl.tensor_from_numpy(random.standard_normal((2, 3, 8, 8), np.float32), acl.ACL_FORMAT_NCHW)
    out = acl.tensor_from_numpy(np.zeros((2, 3, 8, 8), np.float32), acl.ACL_FORMAT_NCHW)
    corners = np.arange(64, dtype=np.int64).reshape(8, 8)[::2, ::2]  # a cell of each window of 2 × 2 cells
    indices = acl.tensor_from_numpy(np.tile(corners, (2, 3, 1, 1)), acl.ACL_FORMAT_NCHW)
    two, none = acl.aclCreateIntArray([2]), acl.aclCreateIntArray([0])
    calls: dict[str, tuple[Any, ...]] = {
        "aclnnAvgPool2dBackward": (grad, x, two, two, none, False, True, 0, 0, out),
        "aclnnAdaptiveMaxPool2dBackward": (grad, x, indices, out),
    }
    found = {}
    for name, arguments in calls.items():
        plan, run = partial(getattr(aclnn, f"{name}GetWorkspaceSize"), *arguments), getattr(aclnn, name)
        _, repeatable, _ = plan()
        acl.aclSetAclOpExecutorRepeatable(repeatable)
        for executor, suffix in ((None, ""), (repeatable, ", repeatable")):
            for count in (CALLS // 10, CALLS):
                start = process_time()
                for _ in range(count):
                    if run(None, 0, executor or plan()[1], None) or acl.aclrtSynchronizeStream(None):
                        sys.exit(f"{name}: {acl.aclGetRecentErrMsg()}")
            found[name + suffix] = (process_time() - start) / CALLS * 1e6
    return found


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--checks", default="warn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--one-round", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one_round:
        print(json.dumps(round_of_calls(args.checks)))
        return
    least: dict[str, dict[str, float]] = {"": {}, **{folder: {} for folder in args.folders}}
    command = [sys.executable, __file__, "--one-round", "--checks", args.checks]
    for _ in range(args.rounds):
        for folder, times in least.items():
            environment = os.environ | ({"PYTHONPATH": folder} if folder else {})
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            for name, time in json.loads(run.stdout).items():
                times[name] = min(time, times.get(name, time))
    for folder, times in least.items():
        for name, time in times.items():
            ratio = f"   this install is {least[''][name] / time:.2f} ×" if folder else ""
            print(f"{folder or 'this install'}: {name} {time:.1f} µs{ratio}")


if __name__ == "__main__":
    main()
