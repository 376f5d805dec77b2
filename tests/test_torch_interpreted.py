"""The way to the GPU kernels without a GPU: tensors go through them under Triton's interpreter.

The interpreter must be asked for before Triton is imported, so this file is also the program that does it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest


def test_pools_by_the_gpu_kernels() -> None:
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    import triton

    if np.lib.NumpyVersion(np.__version__) >= "2.4.0" and triton.__version__ < "3.9":
        pytest.skip(f"Triton {triton.__version__}'s interpreter does not run on NumPy {np.__version__}")
    env = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "42 gradients" in run.stdout


def main() -> None:
    import torch
    from pools import EVERY, POOLS, gradient, sample

    import pooltide.torch as pt
    from pooltide.kernels.cuda import launch as triton_launch
    from pooltide.torch import devices, functional

    must = [gradient(pool.forward, sample(pool)) for pool in EVERY]
    launched: list[str] = []
    real = triton_launch.Ready.__call__
    triton_launch.Ready.__call__ = lambda ready, *rest: (
        launched.append(ready.problem.kind) or real(ready, *rest)
    )
    devices._on_cpu = devices._on_cuda
    torch.cuda.is_current_stream_capturing = lambda: False  # what a build without CUDA can't be asked
    for pool, expected in zip(EVERY, must, strict=True):
        x = sample(pool)
        with pt.patch():
            for given in [x, x.to(memory_format=pool.channels_last)] if pool.axes > 1 else [x]:
                assert torch.equal(gradient(pool.forward, given), expected), pool
        if pool not in POOLS:
            continue
        assert torch.equal(gradient(lambda x, pool=pool: pool.forward(x, functional), x), expected), pool
        assert gradient(lambda x, pool=pool: pool.forward(x, functional), x[1]).shape == x[1].shape
    bad = torch.zeros(2, 3, 5, 7, dtype=torch.int64)
    bad[1, 2, 3, 4] = 2**32 + 5
    text = r"indices\[1, 2, 3, 4\] is 4294967301; it must be 0 to 142, inside the 11×13 plane\."
    with pytest.raises(IndexError, match=f"^adaptive_max_pool2d_backward: {text}$"):
        pt.adaptive_max_pool2d_backward(torch.ones(2, 3, 5, 7), (2, 3, 11, 13), bad)
    print(len(launched) - 1, "gradients")


if __name__ == "__main__":
    main()
