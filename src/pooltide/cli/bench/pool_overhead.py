"""Measures the host time of patched pools of tiny tensors: `python -m pooltide.torch.overhead pools [cuda]`.

PyTorch's pools under patch(), forward and backward, and under patch(forward=True): forward, forward and
backward, and the forward of a tensor without a gradient; with the time ÷ that of plain PyTorch. Processor
time of one thread, also with `cuda`. Each variant has a process, and the processes take turns: a processor's
clock changes within seconds.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

import torch

from ...operators.catalog import gradients, operators
from ...torch import wait_for_kernels
from .model_training import VARIANTS, worker

ROUNDS, CALLS, TURNS = 60, 500, 6
SMALLEST = (1, 16, 4)  # N, C, and the length of every axis

Times = tuple[float, ...]


def min_times(
    *calls: Callable[[], Any],
    rounds: int = ROUNDS,
    number: int = CALLS,
    finish: Callable[[], Any] = lambda: None,
    timer: Callable[[], float] = timeit.default_timer,
) -> list[float]:
    """Returns the minimum microseconds per call for each of `calls`, including `finish` after each round."""
    minima = [float("inf")] * len(calls)
    order = list(range(len(calls)))
    for _ in range(rounds):
        order.append(order.pop(0))  # rotate: the threads of the call before may still spin
        for i in order:
            calls[i]()  # warm up: reuse pages that the same call freed
            finish()
            seconds = timeit.timeit(calls[i], number=number, timer=timer)
            seconds += timeit.timeit(finish, number=1, timer=timer)
            minima[i] = min(minima[i], seconds / number * 1e6)
    return minima


@cache
def _calls(name: str, device: str) -> tuple[Callable[[], Any], ...]:
    """Returns a pool's forward, forward and backward, and its forward without a gradient, and calls each."""
    n, c, length = SMALLEST
    pool = partial(getattr(torch.nn.functional, name), output_size=length // 2)
    if operators()[name].windows != "adaptive":
        pool = partial(getattr(torch.nn.functional, name), kernel_size=2)
    x = torch.randn(n, c, *[length] * len(operators()[name].axes), device=device, requires_grad=True)
    plain, g = x.detach(), torch.ones_like(pool(x).detach())
    forward, without = partial(pool, x), partial(pool, plain)

    def both() -> Any:
        return torch.autograd.grad(forward(), x, g)

    for call in (forward, both, without):
        call()
    wait_for_kernels()  # until a kernel is there, Python handles the call
    return forward, both, without


def times(name: str, device: str) -> Times:
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    timed = partial(min_times, rounds=4, number=200, timer=time.thread_time)  # what this thread computes
    return tuple(timed(*_calls(name, device), finish=finish))


def run(device: str) -> None:
    heads = "patch(): with backward", "forward=True: forward", "with backward", "without gradient"
    print(" " * 20 + "".join(f"{head:>25}" for head in heads), flush=True)
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(variant, 1)) for variant in VARIANTS]
        for name in [function.removesuffix("_backward") for function in gradients()]:
            turns = [[each.submit(times, name, device).result() for each in workers] for _ in range(TURNS)]
            least = [tuple(map(min, *of_variant)) for of_variant in zip(*turns, strict=True)]
            (forward, backward, without), gradients_only, both = least
            ours, theirs = [gradients_only[1], *both], (backward, forward, backward, without)
            cells = (f"{t:.1f} µs {t / other:.2f}×" for t, other in zip(ours, theirs, strict=True))
            print(f"{name:20}" + "".join(f"{cell:>25}" for cell in cells), flush=True)
