#!/usr/bin/env python3
"""Times the planning of new image sizes for a GPU, and counts the kernels that they need. Uses no GPU.

    python tools/plan_sizes.py [--sizes 200] [--seed 1] [--each] [--drawn 0]

The seven pools of cli/bench/new_sizes.py, in float32 and bfloat16, planes and channels-last, of 2 images of
64 channels with sides of 20 to 110 cells: milliseconds of processor time in which the launches of a size are
planned for an H200, tables included, and how many kernels all sizes need, for each pool, dtype, layout and
direction; after "+" those that only sizes with adaptive windows of one length need. `--each` prints every
row; else only the sums and the rows with more than 6 kernels. `--drawn N` times N gradients and N forwards,
drawn as `pooltide bench --drawn` does, and names the slowest.
"""

from __future__ import annotations

import argparse
import gc
from itertools import product
from time import process_time

import numpy as np

from pooltide.acceptance.notation import parse
from pooltide.acceptance.trial import problem_of
from pooltide.cache import CALLS
from pooltide.cli.bench.drawn_problems import problems_of as drawn_problems
from pooltide.cli.bench.forward_pools import problems_of
from pooltide.cli.bench.sampling import CELLS, Sampling, draw_problems
from pooltide.kernels.cuda import choice
from pooltide.kernels.cuda.kernel_tables import is_ragged
from pooltide.kernels.cuda.runtime.driver import H200
from pooltide.problem.problem import Problem

POOLS = (
    *("max2d:2x64x{}:k3:s2:p1", "max2d:2x64x{}:k2:s2", "max2d:2x64x{}:k5:s1:p2", "avg2d:2x64x{}:k3:s2:p1"),
    *("adaptive_avg2d:2x64x{}:o6x6", "adaptive_max2d:2x64x{}:o7x7", "adaptive_avg2d:2x64x{}:o3x3"),
)
MAX_KERNELS = 6


def problems(pool: str, size: tuple[int, int]) -> dict[str, Problem]:
    """The gradient, and the forward that patched pools run; by direction."""
    gradient = problem_of(parse(pool.format("x".join(map(str, size)))))
    return {"backward": gradient, "forward": problems_of(gradient)[0]}


def planned(problem: Problem, layout: str) -> tuple[float, set[str]]:
    """Milliseconds of processor time, and the kernels."""
    CALLS.clear()
    begin = process_time()
    launches = choice.plan(problem, layout, H200)
    return (process_time() - begin) * 1e3, {repr(launch.source) for launch in launches}


def is_adaptive(problem: Problem) -> bool:
    return any(axis.adaptive and axis.length > 1 for axis in problem.axes)


def time_drawn(count: int, seed: int) -> None:
    drawn = [
        one
        for kind in ("gradients", "forwards")
        for one in draw_problems(Sampling(count, seed, kind, "cuda", CELLS["cuda"]))
    ]
    rows = [
        (planned(problem, layout)[0], f"{problem}, {layout}")
        for one in drawn
        for problem, layout in drawn_problems(one)
    ]
    rows = sorted(rows[1:], reverse=True)  # the first one reads costs.json
    times = [time for time, _ in rows]
    print(
        f"{len(times)} plans: median {np.median(times):.2f}, p90 {np.quantile(times, 0.9):.2f} ms; slowest:"
    )
    for time, name in rows[:5]:
        print(f"{time:6.2f} ms  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--drawn", type=int, default=0)
    args = parser.parse_args()
    gc.disable()
    if args.drawn:
        time_drawn(args.drawn, args.seed)
        return
    rng = np.random.default_rng(args.seed)
    sizes = [(int(h), int(w)) for h, w in rng.integers(20, 111, (args.sizes, 2))]
    times, most = [], 0
    for pool, dtype, layout in product(POOLS, ("f32", "bf16"), ("planes", "channels_last")):
        for direction in problems(f"{pool}:{dtype}", sizes[0]):
            listed = [problems(f"{pool}:{dtype}", size)[direction] for size in sizes]
            rows = [planned(problem, layout) for problem in listed]
            alike = [is_adaptive(problem) and not is_ragged(problem) for problem in listed]
            usual = set().union(*(found for (_, found), even in zip(rows, alike, strict=True) if not even))
            more = set().union(*(found for _, found in rows)) - usual
            rest = [time for time, _ in rows[1:]]  # the first one reads costs.json
            times += rest
            most = max(most, len(usual))
            if args.each or len(usual | more) > MAX_KERNELS:
                name = f"{pool.replace('{}', 'HxW')} {dtype} {layout} {direction}"
                figures = f"{np.median(rest):6.2f} {max(rest):6.2f} ms   {len(usual):3} + {len(more)} kernels"
                print(f"{name:60} {figures}", flush=True)
    print(
        f"{len(times)} plans: median {np.median(times):.2f}, p90 {np.quantile(times, 0.9):.2f}, "
        f"worst {max(times):.2f} ms; at most {most} kernels"
    )


if __name__ == "__main__":
    main()
