"""The benchmark of a gradient on the CPU: our NumPy function, our function on tensors, PyTorch's operator.

`prepare` compares our result with the reference, and in float32 with PyTorch's, bit by bit. All
implementations read and write the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...acceptance.inputs import arrays
from ...acceptance.notation import Case
from ...acceptance.trial import Refused, plan_of, windows_of
from ...acceptance.ulps import bits_of
from ...arrays import functions
from ...arrays.volumes import as_volume
from ...kernels import Arrays, reference
from ...operators.pages import HOST
from ...problem.problem import Problem
from .measurement import Benchmark, Implementations, WrongResult, attributes_of

Array = NDArray[Any]
SAMPLE_PLANES = 12  # that are compared with the reference, bit by bit


def prepare(case: Case) -> Benchmark:
    """The benchmark of a gradient, after the results were checked."""
    problem = problem_to_time(case)
    data = arrays(case.call(HOST), problem, case.data)
    ours = on_arrays(case, *data)
    verify = partial(_verify, case, problem, data, ours)
    verify()
    on_tensors: Implementations = {}
    if find_spec("torch"):
        from . import pytorch_gradients

        on_tensors = pytorch_gradients.on_tensors(case, *data)
    kernel = chosen_kernel(plan_of(case).kernels)
    return Benchmark(case, problem, data[2].nbytes, ours | on_tensors, verify, kernel)


def chosen_kernel(kernels: Iterable[tuple[str, str | None]]) -> str | None:
    """The name of the first kernel without a reason against it; None: no kernel is listed."""
    return next((name for name, reason in kernels if reason is None), None)


def problem_to_time(case: Case) -> Problem:
    """The problem of a case. Refused: the rules refuse it, or it has no cells."""
    problem = windows_of(case, "bench of a gradient")
    if problem.unpool:
        raise Refused("bench does not time unpools; it times the twelve pools and their gradients")
    if 0 in (problem.planes, *problem.input_plane, *problem.output_plane):
        raise Refused("the case has no cell; there is nothing to time")
    return problem


def on_arrays(case: Case, grad: Array, indices: Array | None, out: Array) -> Implementations:
    function = getattr(functions, case.operator.function)
    attributes = attributes_of(case)
    inputs = (grad, case.shape) if indices is None else (grad, case.shape, indices)
    return {
        "ours out=": lambda: function(*inputs, *attributes, out=out),
        "ours": lambda: function(*inputs, *attributes),
    }


def _verify(case: Case, problem: Problem, data: Any, ours: Implementations) -> None:
    axes = len(case.operator.axes)
    try:
        ours["ours out="]()
    except (TypeError, ValueError, IndexError) as error:  # the function refuses the call
        raise Refused(str(error)) from None
    if not np.array_equal(bits_of(ours["ours"]()), bits_of(data[2])):
        raise WrongResult(f"{case}: out= and a fresh result differ")
    check_sample(case, problem, (None if a is None else as_volume(a, axes) for a in data))


def check_sample(
    case: Case, problem: Problem, volumes: Iterable[Any], read: Callable[[Any], Array] = np.asarray
) -> None:
    """Compare some planes of the result with the reference, bit by bit. WrongResult: they differ.

    `volumes` are grad_output, indices or None, and the result; `read` makes NumPy arrays of their planes.
    """
    grad, indices, out = volumes
    planes = sample_planes(problem)
    sample = replace(problem, batch=(1, len(planes)))

    def sampled(array: Any) -> Array:
        return read(array[planes // problem.batch[1], planes % problem.batch[1]])[None]

    expected = np.empty(sample.batch + sample.input_plane, problem.dtype.numpy)
    scratch = np.empty(reference.scratch(sample), np.uint8)
    sampled_indices = None if indices is None else sampled(indices)
    inputs = Arrays(sampled(grad), None, sampled_indices, expected)
    if reference.run(sample, "planes", inputs, scratch) is not None:
        raise Refused(f"{case}: an index is outside its plane")
    if not np.array_equal(bits_of(sampled(out)), bits_of(expected)):
        raise WrongResult(f"{case}: the result differs from the reference")


def sample_planes(problem: Problem) -> NDArray[np.intp]:
    """The planes to compare, counted through all images."""
    return np.unique(np.linspace(0, problem.planes - 1, SAMPLE_PLANES).astype(np.intp))
