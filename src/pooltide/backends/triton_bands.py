"""Average gradients of planes on the GPU whose rows lie in two windows at most: most pools are like that.

    grad_input[cell] = ((0 + q[w0]) + q[w1]) + …      windows that hold the cell, (h, w) ascending

A lane goes down a column, or V neighbours, from one row of windows to the next. What one row of windows
adds to its cells is what cells in that row alone get, and what cells that the next one shares begin with;
so every quotient is taken once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_average import lanes_of_columns, over_axes


@triton.jit(do_not_specialize=["lanes", "groups", "inner", "H", "Ho", "Wo", "chunk", "chunks"])
def bands(grad, out, edges, columns, divisors, lanes, groups, inner, H, Ho, Wo, chunk, chunks,
          L: tl.constexpr, V: tl.constexpr, LAST: tl.constexpr, S: tl.constexpr, WIDE: tl.constexpr,
          ONCE: tl.constexpr, BY_H: tl.constexpr, BY_W: tl.constexpr):  # fmt: skip
    """`edges` has for each row of windows where it starts, where those end that it shares with the row
    before, where those end that it has alone, and where the next one starts. The rest is as in `rows`.
    """
    ACC: tl.constexpr = divisors.dtype.element_ty
    pid = tl.program_id(0)
    block = pid // chunks
    live, target, source, step, base, low, count = lanes_of_columns(
        grad, out, columns, block, lanes, groups, inner, H, Ho * Wo, L, V, LAST, WIDE)  # fmt: skip
    bits = ((1 << count) - 1) << low
    over_h = divisors + 2
    over_w = over_h + (Ho + base) * 2
    by, inverse = (), ()
    for j in tl.static_range(S):
        by += (tl.load(over_w + j * 2, mask=base + j < Wo, other=1),)
        inverse += (tl.load(over_w + j * 2 + 1, mask=base + j < Wo, other=1),)
    ahead, line = (Wo * step).to(tl.int64), (groups * V).to(tl.int64)
    first = (pid - block * chunks) * chunk
    alone = tl.zeros([L, V], ACC)
    nothing = tl.zeros([L, V], out.dtype.element_ty)
    for a in range(tl.maximum(first - 1, 0), tl.minimum(first + chunk, Ho)):
        dh, rh = tl.load(over_h + a * 2), tl.load(over_h + a * 2 + 1)
        row = source + a * ahead
        shared = alone
        alone = tl.zeros([L, V], ACC)
        for j in tl.static_range(S):
            g = tl.load(row + j * step, mask=live & (base + j < Wo), other=0).to(ACC)
            q = over_axes(g, dh, rh, dh, rh, by[j], inverse[j], ONCE, 0, BY_H, BY_W)
            q = tl.where((bits & (1 << j)) != 0, q, 0.0)
            shared += q
            alone += q
        if a >= first:
            edge = edges + a * 4
            start, both, one, end = tl.load(edge), tl.load(edge + 1), tl.load(edge + 2), tl.load(edge + 3)
            cells = shared.to(out.dtype.element_ty)
            for h in range(start, both):
                tl.store(target + h * line, cells, mask=live)
            cells = alone.to(out.dtype.element_ty)
            for h in range(both, one):
                tl.store(target + h * line, cells, mask=live)
            for h in range(one, end):
                tl.store(target + h * line, nothing, mask=live)
