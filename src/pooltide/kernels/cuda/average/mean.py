"""Plans `mean of planes`, mean.cu."""

from __future__ import annotations

from math import prod

from ..kernel_tables import cdiv, divider
from ..source import Source
from ..task import Launch, Task
from ..windows import columns
from ..windows.columns import TENSORS


def mean_average(task: Task) -> tuple[Launch, ...] | str:
    """The mean of whole planes, in 16 sums."""
    if task.problem.quotient != "mean":
        return "it is no mean of whole planes"
    inner, cells = task.inner, prod(task.problem.input_plane)
    channels = min(inner, 32)
    c_chunks = cdiv(inner, channels)
    threads = 16 * channels if inner > 1 else columns.THREADS
    grid = task.planes * c_chunks if inner > 1 else cdiv(task.planes, columns.THREADS // 16)
    parameters = (
        *TENSORS,
        *(("i64", "planes"), ("int", "cells"), ("int", "inner")),
        *(("Divider", "by_channels"), ("Divider", "by_c_chunks")),
    )
    defines = (*task.defines, ("INNER", int(inner > 1)), ("THREADS", threads))
    source = Source("mean.cu", "mean", parameters, defines)
    arguments = (task.planes, cells, inner, divider(channels), divider(c_chunks))
    return (Launch(source, grid, threads, threads * task.sum_bytes, (), arguments),)
