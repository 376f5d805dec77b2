"""tune() on a GPU: the fastest kernel is used from then on, with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU"),
]


def test_a_tuned_call_has_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pooltide.torch as pt
    from pooltide.kernels.cuda import launch, tuned
    from pooltide.kernels.cuda.tuning import measure

    monkeypatch.setenv("POOLTIDE_CACHE", str(tmp_path))
    grad, x = torch.randn(8, 67, 11, 10, device="cuda"), torch.empty(8, 67, 31, 28, device="cuda")
    pooled, indices = torch.nn.functional.max_pool2d(torch.randn_like(x), 4, 3, 2, return_indices=True)

    def gradients() -> list[object]:
        average = pt.avg_pool2d_backward(grad, x, 5, 3, 2)
        return [average, pt.max_pool2d_backward(pooled, x, indices, 4, 3, 2)]

    before = gradients()
    found = pt.tune()
    tasks = dict.fromkeys(task for task, _ in launch.prepared_tasks())
    assert len(found) == len(tasks)
    assert all(one.gain >= 1 for one in found)
    assert {tuned.fastest(task) for task in tasks} == {one.now for one in found}
    assert all(torch.equal(a, b) for a, b in zip(before, gradients(), strict=True))
    # Forced: the slowest candidate of each problem computes the same.
    for task in tasks:
        measured = measure(task, 0, 3)
        assert not measured.wrong
        tuned.keep(task, max(measured.seconds, key=measured.seconds.__getitem__))
    launch.take_tuned()
    assert all(torch.equal(a, b) for a, b in zip(before, gradients(), strict=True))
