"""The GPU forwards on a GPU: the reference's bits for random problems, with aligned tensors and others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_problems import flat
from simt_forwards import random_forward

from enumeration import NONE, bits, difference
from pooltide.kernels import Arrays, reference

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


@pytest.mark.parametrize("part", range(8))
def test_random_forwards_have_the_reference_bits(part: int) -> None:
    from pooltide.kernels.cuda.launch import prepare

    for seed in range(part, 800, 8):
        problem, x = random_forward(seed)
        values = np.empty(problem.batch + problem.output_plane, x.dtype)
        kinds = {0: None, 1: np.empty(values.shape, np.uint8), 8: np.empty(values.shape, np.int64)}
        places = kinds[problem.index_bytes]
        reference.run(problem, "planes", Arrays(input=x, indices=places, out=values), NONE)
        for layout in ("planes", "channels_last"):
            shift = seed // 8 % 2
            given = on_gpu(flat(x, layout), shift)
            out = on_gpu(np.full(values.size, np.nan).astype(x.dtype), shift)
            found = None if places is None else on_gpu(np.full(values.size, 77, places.dtype), shift)
            prepare(problem, layout, 0)(given, found, out)
            got, want = to_numpy(out, x.dtype), flat(values, layout)
            assert (bits(got) == bits(want)).all(), (
                f"seed {seed}: {problem} {layout}: {difference(got, want)}"
            )
            if found is not None:
                assert (found.cpu().numpy() == flat(places, layout)).all(), f"seed {seed}: {problem} {layout}"
