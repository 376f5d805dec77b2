"""Average gradients on the GPU: each cell of grad_input gathers the quotients of its windows, once.

    grad_input[cell] = ((0 + q[w0]) + q[w1]) + …      windows that hold the cell, (d, h, w) ascending
    q[w] = grad_output[w] / divisor[w]                rounded as IEEE division rounds

A tensor is (outer, D, H, W, inner): N·C planes with inner = 1, or N volumes of C channels. Memory is
cut into groups of V neighbours of one row, V elements being at most 16 bytes. A lane is one group of
all rows: what depends on (outer, w, c) is worked out once per lane, what depends on (d, h) once per
program. Instructions, not bytes, are scarce here, so a quotient is taken once for all cells that share
it: rows between two window edges are one segment and are written from the same registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

LARGEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def quotient(g, d, r, FAST: tl.constexpr):
    """g / d as IEEE rounds it; r is 1/d rounded, FAST says that d is an odd or two-power int < 2**20.

    With r within 2 ulp of 1/d, the remainder e = g − q·d is exact (a multiple of an ulp below 2**24 of
    them), and q + e·r is g/d but for 2**-21 ulp. g/d is never that near a rounding boundary without
    lying on it, and on it only where d is even and the result subnormal; two-powers have exact r.
    The minimum turns the NaN that an infinite g leaves in e into a number; g's own infinity stays.
    """
    if FAST:
        q = g * r
        e = tl.minimum(tl.fma(-q, d, g), LARGEST)
        return tl.fma(e, r, q)
    if g.dtype == tl.float64:
        return g / d
    return tl.div_rn(g, d)


@triton.jit
def over_axes(g, dd, rd, dh, rh, dw, rw, STEPS: tl.constexpr, FAST: tl.constexpr):
    """STEPS: 8 is one division by the product; else 1, 2, 4 are divisions by d, h, w, in this order."""
    if STEPS & 8:
        g = quotient(g, dh * dw, rh * rw, FAST)
    if STEPS & 1:
        g = quotient(g, dd, rd, FAST)
    if STEPS & 2:
        g = quotient(g, dh, rh, FAST)
    if STEPS & 4:
        g = quotient(g, dw, rw, FAST)
    return g


@triton.jit
def floor_over(x, n, magic, shift):
    """x // n for x < 2**31: x · magic >> 32 + shift, with magic = ceil(2**(32 + shift) / n) < 2**32."""
    word = tl.umulhi(x.to(tl.uint32), magic.to(tl.uint32, bitcast=True)) >> shift.to(tl.uint32)
    return tl.where(n == 1, x.to(tl.int32), word.to(tl.int32))


@triton.jit(do_not_specialize=["plane", "planes", "magic", "shift"])
def whole(grad, out, divisors, plane, planes, magic, shift,
          L: tl.constexpr, V: tl.constexpr, PAIRS: tl.constexpr, RAGGED: tl.constexpr,
          STEPS: tl.constexpr, FAST: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """One window holds the plane. V neighbours touch at most two planes if V <= plane (PAIRS).

    RAGGED: the last V neighbours are not all there.
    """
    ACC: tl.constexpr = divisors.dtype.element_ty
    dd, rd = tl.load(divisors), tl.load(divisors + 1)
    dh, rh = tl.load(divisors + 2), tl.load(divisors + 3)
    dw, rw = tl.load(divisors + 4), tl.load(divisors + 5)
    v = tl.arange(0, V)[None, :]
    ahead = tl.arange(0, L)[:, None] * V
    begin = tl.program_id(0) * (L * V)
    before = tl.program_id(0) * 0
    if WIDE:
        begin = tl.program_id(0).to(tl.int64) * (L * V)
        before = begin // plane
        ahead += (begin - before * plane).to(tl.int32)
    else:
        ahead += begin
    if PAIRS:
        near = floor_over(ahead, plane, magic, shift)
        p = before + near
        a = tl.load(grad + p, mask=p < planes, other=0).to(ACC)
        b = tl.load(grad + p + 1, mask=p + 1 < planes, other=0).to(ACC)
        a = 0.0 + over_axes(a, dd, rd, dh, rh, dw, rw, STEPS, FAST)
        b = 0.0 + over_axes(b, dd, rd, dh, rh, dw, rw, STEPS, FAST)
        sums = tl.where(v < plane - (ahead - near * plane), a, b)
    else:
        p = before + floor_over(ahead + v, plane, magic, shift)
        g = tl.load(grad + p, mask=p < planes, other=0).to(ACC)
        sums = 0.0 + over_axes(g, dd, rd, dh, rh, dw, rw, STEPS, FAST)
    group = (begin // V + tl.arange(0, L))[:, None]
    cells = planes.to(tl.int64) * plane
    live = (group * V + v < cells) if RAGGED else (group < cells // V)
    tl.store(out + (group * V + v), sums.to(out.dtype.element_ty), mask=live)


@triton.jit
def lanes_of(block, lanes, groups, L: tl.constexpr, WIDE: tl.constexpr):
    """The lanes of a block as columns: is it one, its outer index, its group within the row."""
    if WIDE:
        block = block.to(tl.int64)
    lane = block * L + tl.arange(0, L)[:, None]
    outer = lane // groups
    return lane < lanes, outer.to(tl.int64), (lane - outer * groups).to(tl.int32)


@triton.jit(do_not_specialize=["lanes", "groups", "inner", "H", "rows", "Ho", "Wo", "windows",
                               "row_segments", "segments", "chunk", "chunks", "repeats"])  # fmt: skip
def rows(grad, out, edges, columns, divisors, lanes, groups, inner, H, rows, Ho, Wo, windows,
         row_segments, segments, chunk, chunks, repeats,
         L: tl.constexpr, V: tl.constexpr, LAST: tl.constexpr, SHARED: tl.constexpr, K: tl.constexpr,
         STEPS: tl.constexpr, FAST: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """Any windows. `edges` has (start, length, first window, windows) of the d segments, then h.

    K is the most windows that hold a column, 0 where that is `repeats`, too many to unroll. SHARED
    says that the V cells of a group lie in the same windows. LAST: the V neighbours are channels.
    """
    ACC: tl.constexpr = divisors.dtype.element_ty
    pid = tl.program_id(0)
    block = pid // chunks
    live, outer, group = lanes_of(block, lanes, groups, L, WIDE)
    v = tl.arange(0, V)[None, :]
    target = out + (outer * rows * groups + group) * V + v
    if LAST:
        column = group // inner
        source = grad + (outer * windows * Wo * inner + group % inner) * V + v
        step = inner * V
    else:
        column = group * V + (0 if SHARED else v)
        source = grad + outer * windows * Wo
        step = 1
    first, count = tl.load(columns + column * 2), tl.load(columns + column * 2 + 1)
    source += first * step
    over_h = divisors + (windows // Ho) * 2
    over_w = over_h + Ho * 2 + first * 2
    by, inverse = (), ()
    for k in tl.static_range(K):
        by += (tl.load(over_w + k * 2, mask=k < count, other=1),)
        inverse += (tl.load(over_w + k * 2 + 1, mask=k < count, other=1),)
    of_h = edges + (segments // row_segments) * 4
    begin = (pid - block * chunks) * chunk
    for task in range(begin, tl.minimum(begin + chunk, segments)):
        at_d, at_h = edges + task // row_segments * 4, of_h + task % row_segments * 4
        d0, d1 = tl.load(at_d), tl.load(at_d + 1)
        h0, h1 = tl.load(at_h), tl.load(at_h + 1)
        first_d, first_h = tl.load(at_d + 2), tl.load(at_h + 2)
        sums = tl.zeros([L, 1 if SHARED and not LAST else V], ACC)
        for od in range(first_d, first_d + tl.load(at_d + 3)):
            dd, rd = tl.load(divisors + od * 2), tl.load(divisors + od * 2 + 1)
            for oh in range(first_h, first_h + tl.load(at_h + 3)):
                dh, rh = tl.load(over_h + oh * 2), tl.load(over_h + oh * 2 + 1)
                row = source + (od * Ho + oh).to(tl.int64) * Wo * step
                for k in tl.static_range(K):
                    g = tl.load(row + k * step, mask=live & (k < count), other=0).to(ACC)
                    sums += over_axes(g, dd, rd, dh, rh, by[k], inverse[k], STEPS, FAST)
                if K == 0:
                    for k in range(repeats):
                        dw = tl.load(over_w + k * 2, mask=k < count, other=1)
                        rw = tl.load(over_w + k * 2 + 1, mask=k < count, other=1)
                        g = tl.load(row + k * step, mask=live & (k < count), other=0).to(ACC)
                        sums += over_axes(g, dd, rd, dh, rh, dw, rw, STEPS, FAST)
        cells = tl.broadcast_to(sums.to(out.dtype.element_ty), [L, V])
        for d in range(d0, d0 + d1):
            for h in range(h0, h0 + h1):
                tl.store(target + (d * H + h).to(tl.int64) * groups * V, cells, mask=live)


@triton.jit
def weave(cells, V: tl.constexpr):
    """V columns of cells, side by side in one tile."""
    if V == 1:
        tile = cells[0]
    elif V == 2:
        tile = tl.join(cells[0], cells[1])
    elif V == 4:
        tile = tl.join(tl.join(cells[0], cells[2]), tl.join(cells[1], cells[3]))
    else:
        even = tl.join(tl.join(cells[0], cells[4]), tl.join(cells[2], cells[6]))
        odd = tl.join(tl.join(cells[1], cells[5]), tl.join(cells[3], cells[7]))
        tile = tl.join(even, odd)
    return tl.reshape(tile, [cells[0].shape[0], V])


@triton.jit(do_not_specialize=["lanes", "groups", "H", "W", "Ho", "Wo", "row_blocks"])
def phases(grad, out, divisors, lanes, groups, H, W, Ho, Wo, row_blocks,
           L: tl.constexpr, V: tl.constexpr, R: tl.constexpr, KH: tl.constexpr, SH: tl.constexpr,
           PH: tl.constexpr, KW: tl.constexpr, SW: tl.constexpr, PW: tl.constexpr,
           A: tl.constexpr, NA: tl.constexpr, B: tl.constexpr, NB: tl.constexpr,
           EVEN: tl.constexpr, RAGGED: tl.constexpr, FAST: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """Overlapping strided windows of planes. A lane owns R rows of V columns and all their windows.

    R and V are whole numbers of strides, so the windows of a patch are NA·NB neighbours from window
    (A, B) of the patch on, and which of them hold which cell is known when compiling. EVEN: all
    windows have the first one's divisor. RAGGED: the row's last patch hangs over.
    """
    ACC: tl.constexpr = divisors.dtype.element_ty
    pid = tl.program_id(0)
    block = pid // row_blocks
    top = pid - block * row_blocks
    if WIDE:
        block = block.to(tl.int64)
    lane = block * L + tl.arange(0, L)
    plane = lane // groups
    group = (lane - plane * groups).to(tl.int32)
    plane = plane.to(tl.int64)
    live = lane < lanes
    a0 = top * (R // SH) + A
    b0 = group * (V // SW) + B
    source = grad + plane * Ho * Wo + b0
    over_h, over_w = divisors + 2, divisors + 2 + Ho * 2
    dd, rd = tl.load(over_h) * tl.load(over_w), tl.load(over_h + 1) * tl.load(over_w + 1)
    quotients = ()
    for i in tl.static_range(NA):
        a = a0 + i
        in_h = (a >= 0) & (a < Ho)
        row = source + a.to(tl.int64) * Wo
        for j in tl.static_range(NB):
            held = live & in_h & (b0 + j >= 0) & (b0 + j < Wo)
            g = tl.load(row + j, mask=held, other=0).to(ACC)
            if EVEN:
                quotients += (quotient(g, dd, rd, FAST),)
            else:
                dh = tl.load(over_h + a * 2, mask=in_h, other=1)
                rh = tl.load(over_h + a * 2 + 1, mask=in_h, other=1)
                dw = tl.load(over_w + (b0 + j) * 2, mask=held, other=1)
                rw = tl.load(over_w + (b0 + j) * 2 + 1, mask=held, other=1)
                quotients += (quotient(g, dh * dw, rh * rw, FAST),)
    column = group[:, None] * V + tl.arange(0, V)[None, :]
    inside = live[:, None]
    if RAGGED:
        inside = inside & (column < W)
        width = W
    else:
        width = groups * V
    target = out + (plane * H)[:, None] * width + column
    for r in tl.static_range(R):
        cells = ()
        for c in tl.static_range(V):
            total = tl.zeros([L], ACC)
            for i in tl.static_range((r + PH - KH) // SH + 1 - A, (r + PH) // SH - A + 1):
                for j in tl.static_range((c + PW - KW) // SW + 1 - B, (c + PW) // SW - B + 1):
                    total += quotients[i * NB + j]
            cells += (total,)
        h = top * R + r
        tile = weave(cells, V).to(out.dtype.element_ty)
        tl.store(target + h.to(tl.int64) * width, tile, mask=inside & (h < H))
