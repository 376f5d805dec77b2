"""The GPU forwards on a GPU: the reference's bits for random problems, with aligned tensors and others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from enumeration import NONE, bits, difference
from geometries import flat
from pooltide.kernels import Arrays, reference
from pooltide.problem.problem import Problem
from simt_forwards import launches, random_forward

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU"),
]


def on_gpu(array: np.ndarray, shift: int) -> Any:
    """A flat copy of the array that begins `shift` elements after an aligned address."""
    words = array.view(np.int16) if array.dtype == ml_dtypes.bfloat16 else array
    memory = torch.zeros(words.size + shift, dtype=torch.from_numpy(words[:0]).dtype, device="cuda")
    memory[shift:] = torch.from_numpy(words).cuda()
    return memory[shift:]


def to_numpy(tensor: Any, dtype: np.dtype[Any]) -> np.ndarray:
    found = tensor.cpu().numpy()
    return found.view(dtype) if dtype == ml_dtypes.bfloat16 else found


def check(label: str, prepared: Any, problem: Problem, layout: str, x: np.ndarray, shift: int) -> None:
    """Compare with the reference; tensors begin `shift` elements after an aligned address."""
    values = np.empty(problem.batch + problem.output_plane, x.dtype)
    kinds = {0: None, 1: np.empty(values.shape, np.uint8), 8: np.empty(values.shape, np.int64)}
    places = kinds[problem.index_bytes]
    reference.run(problem, "planes", Arrays(input=x, indices=places, out=values), NONE)
    given = on_gpu(flat(x, layout), shift)
    out = on_gpu(np.full(values.size, np.nan).astype(x.dtype), shift)
    found = None if places is None else on_gpu(np.full(values.size, 77, places.dtype), shift)
    prepared(given, found, out)
    got, want = to_numpy(out, x.dtype), flat(values, layout)
    assert (bits(got) == bits(want)).all(), f"{label}: {problem} {layout}: {difference(got, want)}"
    if found is not None:
        assert (found.cpu().numpy() == flat(places, layout)).all(), f"{label}: {problem} {layout}"


@pytest.mark.parametrize("part", range(8))
def test_random_forwards_have_the_reference_bits(part: int) -> None:
    from pooltide.kernels.cuda.launch import prepare

    for seed in range(part, 800, 8):
        problem, x = random_forward(seed)
        for layout in ("planes", "channels_last"):
            check(f"seed {seed}", prepare(problem, layout, 0), problem, layout, x, seed // 8 % 2)


@pytest.mark.parametrize("part", range(4))
def test_staged_forwards_have_the_reference_bits(part: int) -> None:
    """Random problems are too small for these kernels, so limits are tiny, or plans are for one multiprocessor."""
    from pooltide.kernels.cuda.launch import PreparedLaunches

    for seed in range(part, 160, 4):
        problem, x = random_forward(seed)
        for name, planned in launches(problem, "planes", small=seed // 8 % 2 == 0):
            if "staged" in name:
                prepared = PreparedLaunches(problem, "planes", 0, planned=planned)
                check(f"{name}, seed {seed}", prepared, problem, "planes", x, seed // 16 % 2)
