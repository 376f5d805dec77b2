"""The example that trains with aclnn calls alone, against PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from c_programs import compile_with_cc, run_program
from pooltide import examples

EXAMPLES = Path(examples.__file__).parent


def _values(shape: tuple[int, ...], step: int) -> Any:
    count = int(np.prod(shape))
    return ((np.arange(count) * step % 23 - 11) / 32).astype(np.float32).reshape(shape)


def _weights() -> Any:
    torch = pytest.importorskip("torch")
    x, target = torch.from_numpy(_values((2, 3, 9, 11), 7)), torch.tensor([1, 3])
    filters = torch.from_numpy(_values((5, 3, 3, 3), 5)).requires_grad_()
    matrix = torch.from_numpy(_values((60, 4), 9)).requires_grad_()
    functional = torch.nn.functional
    for _ in range(2):
        maxima = functional.max_pool2d(functional.conv2d(x, filters, padding=1).relu(), 2)
        logits = functional.avg_pool2d(maxima, 2, 1).reshape(2, 60) @ matrix
        filters.grad = matrix.grad = None
        functional.cross_entropy(logits, target).backward()
        with torch.no_grad():
            filters -= 0.5 * filters.grad
            matrix -= 0.5 * matrix.grad
    return np.concatenate([filters.detach().numpy().ravel(), matrix.detach().numpy().ravel()])


def test_the_weights_are_pytorch_s(tmp_path: Path) -> None:
    source = EXAMPLES / "training_step.cpp"
    program = compile_with_cc(source, tmp_path / "step", "--operators", str(EXAMPLES / "operators"))
    run = run_program(program, environment={"POOLTIDE_CHECKS": "strict"})
    assert (run.returncode, run.stderr) == (0, "")
    got, want = np.array(run.stdout.split(), np.float32), _weights()
    before = np.concatenate([_values((5, 3, 3, 3), 5).ravel(), _values((60, 4), 9).ravel()])
    assert (got != before).mean() > 0.9
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
