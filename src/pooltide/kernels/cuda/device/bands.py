"""Average gradients on the GPU of planes whose rows lie in two windows at most: most pools are like that.

    grad_input[cell] = ((0 + q[w0]) + q[w1]) + …      windows that hold the cell, (h, w) ascending

A lane goes down a column, or V neighbours, from one row of windows to the next. What one row of windows
adds to its cells is what cells in that row alone get, and what cells that the next one shares begin with;
so every quotient is taken once. With channels last the V neighbours are channels.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .average import floor_over, lanes_of_columns, over_axes


@triton.jit
def write(out, at, line, n, cells, live, MOST: tl.constexpr):
    """The same cells to n rows from `at` on: MOST at most, or any number where MOST is -1."""
    if MOST < 0:
        for h in range(n):
            tl.store(out + (at + h * line), cells, mask=live)
    else:
        there = tl.zeros_like(at) + n  # the interpreter has no mask of lanes and one condition for all
        for h in tl.static_range(MOST):
            tl.store(out + (at + h * line), cells, mask=live & (there > h))


@triton.jit(do_not_specialize=["lanes", "groups", "inner", "H", "Ho", "Wo", "chunk", "chunks", "magic_g",
                               "shift_g", "magic_i", "shift_i"])  # fmt: skip
def bands(grad, out, edges, columns, divisors, lanes, groups, inner, H, Ho, Wo, chunk, chunks, magic_g,
          shift_g, magic_i, shift_i,
          L: tl.constexpr, V: tl.constexpr, LAST: tl.constexpr, S: tl.constexpr, SHARED: tl.constexpr,
          ALONE: tl.constexpr, NONE: tl.constexpr, WIDE: tl.constexpr,
          ONCE: tl.constexpr, BY_H: tl.constexpr, BY_W: tl.constexpr):  # fmt: skip
    """`edges` has for each row of windows where it starts, how many rows of cells it shares with the row of
    windows before, how many it has alone, and how many follow that are in none: SHARED, ALONE and NONE at
    most, or -1 where these are many. The rest is as in `rows`.

    Addresses are 32-bit numbers from the block's first plane on: half the instructions of 64-bit ones.
    """
    ACC: tl.constexpr = divisors.dtype.element_ty
    pid = tl.program_id(0)
    block = pid // chunks
    live, outer, to, source, step, base, low, count = lanes_of_columns(
        columns, block, lanes, groups, inner, magic_g, shift_g, magic_i, shift_i,
        L, V, LAST, WIDE)  # fmt: skip
    if WIDE:
        first_plane = block.to(tl.int64) * L // groups
    else:
        first_plane = floor_over(block * L, groups, magic_g, shift_g).to(tl.int64)
    near = (outer - first_plane).to(tl.int32)
    ahead, line = Wo * step, groups * V
    grad += first_plane * Ho * ahead
    out += first_plane * H * line
    source += near * (Ho * ahead)
    to += near * (H * line)
    bits = ((1 << count) - 1) << low
    over_h = divisors + 2
    over_w = over_h + (Ho + base) * 2
    by, inverse, held = (), (), ()
    for j in tl.static_range(S):
        by += (tl.load(over_w + j * 2, mask=base + j < Wo, other=1),)
        inverse += (tl.load(over_w + j * 2 + 1, mask=base + j < Wo, other=1),)
        held += (live & (base + j < Wo),)
    first = (pid - block * chunks) * chunk
    alone = tl.zeros([L, V], ACC)
    for a in range(tl.maximum(first - 1, 0), tl.minimum(first + chunk, Ho)):
        dh, rh = tl.load(over_h + a * 2), tl.load(over_h + a * 2 + 1)
        shared = alone
        alone = tl.zeros([L, V], ACC)
        row = source + a * ahead
        for j in tl.static_range(S):
            g = tl.load(grad + (row + j * step), mask=held[j], other=0).to(ACC)
            q = over_axes(g, dh, rh, dh, rh, by[j], inverse[j], ONCE, 0, BY_H, BY_W)
            q = tl.where((bits & (1 << j)) != 0, q, 0.0)
            shared += q
            alone += q
        if a >= first:
            edge = edges + a * 4
            at = to + tl.load(edge) * line
            n_shared, n_alone, n_none = tl.load(edge + 1), tl.load(edge + 2), tl.load(edge + 3)
            write(out, at, line, n_shared, shared.to(out.dtype.element_ty), live, SHARED)
            at += n_shared * line
            write(out, at, line, n_alone, alone.to(out.dtype.element_ty), live, ALONE)
            at += n_alone * line
            write(out, at, line, n_none, tl.zeros([L, V], out.dtype.element_ty), live, NONE)
