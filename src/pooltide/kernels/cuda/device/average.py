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
def quotient(g, d, r, HOW: tl.constexpr):
    """g / d as IEEE rounds it, where r is 1/d rounded. HOW: 0 d = 1, 1 d is a power of two, 2 d is odd
    or a power of two and below 2**20, 3 d is any number.

    Of 2: with r within 2 ulp of 1/d, the remainder e = g − q·d is exact (a multiple of an ulp, below
    2**24 of them), and q + e·r is g/d but for 2**-21 ulp. g/d is never that near a rounding boundary
    without lying on it, and on it only where d is even and the result subnormal; powers of two have an
    exact r. The minimum turns the NaN that an infinite g leaves in e into a number; g's infinity stays.
    """
    if HOW == 1:
        g = g * r
    elif HOW == 2:
        q = g * r
        e = tl.minimum(tl.fma(q, -d, g), LARGEST)
        g = tl.fma(e, r, q)
    elif HOW == 3:
        g = g / d if g.dtype == tl.float64 else tl.div_rn(g, d)
    return g


@triton.jit
def over_axes(g, dd, rd, dh, rh, dw, rw, ONCE: tl.constexpr, BY_D: tl.constexpr, BY_H: tl.constexpr,
              BY_W: tl.constexpr):  # fmt: skip
    """Divided once by the product, or by d, h, w one after another: how each is done, 0 for not at all.

    The product leaves d out where BY_D is 0: flat pools, whose d is 1 everywhere.
    """
    if ONCE:
        if BY_D:
            g = quotient(g, dd * dh * dw, rd * rh * rw, ONCE)
        else:
            g = quotient(g, dh * dw, rh * rw, ONCE)
    else:
        g = quotient(g, dd, rd, BY_D)
        g = quotient(g, dh, rh, BY_H)
        g = quotient(g, dw, rw, BY_W)
    return g


@triton.jit
def floor_over(x, n, magic, shift):
    """x // n for x < 2**31: x · magic >> 32 + shift, with magic = ceil(2**(32 + shift) / n) < 2**32."""
    word = tl.umulhi(x.to(tl.uint32), magic.to(tl.uint32, bitcast=True)) >> shift.to(tl.uint32)
    return tl.where(n == 1, x.to(tl.int32), word.to(tl.int32))


@triton.jit(do_not_specialize=["plane", "planes", "magic", "shift"])
def whole(grad, out, divisors, plane, planes, magic, shift,
          L: tl.constexpr, V: tl.constexpr, PAIRS: tl.constexpr, RAGGED: tl.constexpr,
          WIDE: tl.constexpr, ONCE: tl.constexpr, BY_D: tl.constexpr, BY_H: tl.constexpr,
          BY_W: tl.constexpr):  # fmt: skip
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
        a = 0.0 + over_axes(a, dd, rd, dh, rh, dw, rw, ONCE, BY_D, BY_H, BY_W)
        b = 0.0 + over_axes(b, dd, rd, dh, rh, dw, rw, ONCE, BY_D, BY_H, BY_W)
        sums = tl.where(v < plane - (ahead - near * plane), a, b)
    else:
        p = before + floor_over(ahead + v, plane, magic, shift)
        g = tl.load(grad + p, mask=p < planes, other=0).to(ACC)
        sums = 0.0 + over_axes(g, dd, rd, dh, rh, dw, rw, ONCE, BY_D, BY_H, BY_W)
    group = (begin // V + tl.arange(0, L))[:, None]
    cells = planes.to(tl.int64) * plane
    live = (group * V + v < cells) if RAGGED else (group < cells // V)
    tl.store(out + (group * V + v), sums.to(out.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["lanes", "groups", "inner", "D", "H", "Do", "Ho", "Wo", "magic_g", "shift_g",
                               "magic_i", "shift_i", "magic_d", "shift_d", "magic_h", "shift_h"])  # fmt: skip
def single(grad, out, places, divisors, lanes, groups, inner, D, H, Do, Ho, Wo, magic_g, shift_g,
           magic_i, shift_i, magic_d, shift_d, magic_h, shift_h,
           L: tl.constexpr, V: tl.constexpr, LAST: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr,
           ONCE: tl.constexpr, BY_D: tl.constexpr, BY_H: tl.constexpr, BY_W: tl.constexpr):  # fmt: skip
    """No cell is in two windows, and a group of V neighbours is in one.

    A lane is here a group of one row. `places` has the window, or -1, of every d, every h, and every
    group of columns, or column if channels come LAST. EVEN: the windows of an axis all have the first
    one's divisor.
    """
    ACC: tl.constexpr = divisors.dtype.element_ty
    v = tl.arange(0, V)[None, :]
    if WIDE:
        lane = tl.program_id(0).to(tl.int64) * L + tl.arange(0, L)[:, None]
        row = lane // groups
        group = (lane - row * groups).to(tl.int32)
        slab = row // H
        h = (row - slab * H).to(tl.int32)
        outer = slab // D
        d = (slab - outer * D).to(tl.int32)
    else:
        lane = tl.program_id(0) * L + tl.arange(0, L)[:, None]
        row = floor_over(lane, groups, magic_g, shift_g)
        group = lane - row * groups
        slab = floor_over(row, H, magic_h, shift_h)
        h = row - slab * H
        outer = floor_over(slab, D, magic_d, shift_d)
        d = slab - outer * D
    column = group
    channel = 0
    step = 1
    if LAST:
        column = floor_over(group, inner, magic_i, shift_i)
        channel = (group - column * inner) * V + v
        step = inner * V
    od, oh, ow = tl.load(places + d), tl.load(places + D + h), tl.load(places + D + H + column)
    held = (lane < lanes) & (od >= 0) & (oh >= 0)
    at = (((outer.to(tl.int64) * Do + od) * Ho + oh) * Wo + ow) * step + channel
    g = tl.load(grad + at, mask=held, other=0).to(ACC)
    by_d, by_h, by_w = divisors, divisors + Do * 2, divisors + (Do + Ho) * 2
    if not EVEN:
        by_d, by_h, by_w = by_d + tl.maximum(od, 0) * 2, by_h + tl.maximum(oh, 0) * 2, by_w + ow * 2
    q = over_axes(g, tl.load(by_d), tl.load(by_d + 1), tl.load(by_h), tl.load(by_h + 1),
                  tl.load(by_w), tl.load(by_w + 1), ONCE, BY_D, BY_H, BY_W)  # fmt: skip
    cells = tl.broadcast_to((0.0 + q).to(out.dtype.element_ty), [L, V])
    tl.store(out + (lane.to(tl.int64) * V + v), cells, mask=lane < lanes)


@triton.jit
def split_lanes(block, lanes, groups, magic_g, shift_g, L: tl.constexpr, WIDE: tl.constexpr):
    """Of each lane of a block: whether it is one, its plane, its group of columns."""
    if WIDE:
        lane = block.to(tl.int64) * L + tl.arange(0, L)
        plane = lane // groups
    else:
        lane = block * L + tl.arange(0, L)
        plane = floor_over(lane, groups, magic_g, shift_g)
    return lane < lanes, plane.to(tl.int64), (lane - plane * groups).to(tl.int32)


@triton.jit
def lanes_of_columns(columns, block, lanes, groups, inner, magic_g, shift_g, magic_i, shift_i,
                     L: tl.constexpr, V: tl.constexpr, LAST: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """Of each lane of a block: whether it is one, its plane or image, where in a row of cells it writes and
    in a row of windows reads, from one of these to the next; then the first window of its columns, how much
    later each column's own come, and how many they are.
    """
    live, outer, group = split_lanes(block, lanes, groups, magic_g, shift_g, L, WIDE)
    live, outer, group = live[:, None], outer[:, None], group[:, None]
    v = tl.arange(0, V)[None, :]
    to = group * V + v
    if LAST:
        column = floor_over(group, inner, magic_i, shift_i)
        place = column
        step = inner * V
        base = tl.load(columns + column)
        source = to - column * step + base * step
    else:
        column = group
        place = to
        step = 1
        base = tl.load(columns + column)
        source = base
    lows = columns + groups // inner
    low = tl.load(lows + place)
    count = tl.load(lows + (groups // inner) * (1 if LAST else V) + place)
    return live, outer, to, source, step, base, low, count


@triton.jit(do_not_specialize=["lanes", "groups", "inner", "H", "rows", "Ho", "Wo", "windows",
                               "row_segments", "segments", "chunk", "chunks", "reach", "magic_g", "shift_g",
                               "magic_i", "shift_i"])  # fmt: skip
def rows(grad, out, edges, columns, divisors, lanes, groups, inner, H, rows, Ho, Wo, windows,
         row_segments, segments, chunk, chunks, reach, magic_g, shift_g, magic_i, shift_i,
         L: tl.constexpr, V: tl.constexpr, LAST: tl.constexpr, S: tl.constexpr, WIDE: tl.constexpr,
         ONCE: tl.constexpr, BY_D: tl.constexpr, BY_H: tl.constexpr, BY_W: tl.constexpr):  # fmt: skip
    """Any windows. `edges` has (start, length, first window, windows) of the d segments, then h, and
    `columns` the first window of each group of columns, then for each column how much later its own first
    window comes, then how many windows it is in.

    The columns of a group lie in S windows at most; they are taken once, and `bits` says which of them
    hold which column. S is 0 where that is `reach`, too many to unroll. LAST: the V neighbours are
    channels, and a group of columns is one column.
    """
    ACC: tl.constexpr = divisors.dtype.element_ty
    pid = tl.program_id(0)
    block = pid // chunks
    live, outer, to, source, step, base, low, count = lanes_of_columns(
        columns, block, lanes, groups, inner, magic_g, shift_g, magic_i, shift_i,
        L, V, LAST, WIDE)  # fmt: skip
    target = out + outer * rows * groups * V + to
    source = grad + outer * windows * Wo * step + source
    bits = ((1 << tl.minimum(count, 30)) - 1) << low
    over_h = divisors + (windows // Ho) * 2
    over_w = over_h + (Ho + base) * 2
    by, inverse = (), ()
    for j in tl.static_range(S):
        by += (tl.load(over_w + j * 2, mask=base + j < Wo, other=1),)
        inverse += (tl.load(over_w + j * 2 + 1, mask=base + j < Wo, other=1),)
    of_h = edges + (segments // row_segments) * 4
    begin = (pid - block * chunks) * chunk
    for task in range(begin, tl.minimum(begin + chunk, segments)):
        at_d, at_h = edges + task // row_segments * 4, of_h + task % row_segments * 4
        d0, d1 = tl.load(at_d), tl.load(at_d + 1)
        h0, h1 = tl.load(at_h), tl.load(at_h + 1)
        first_d, first_h = tl.load(at_d + 2), tl.load(at_h + 2)
        n_d, n_h = tl.load(at_d + 3), tl.load(at_h + 3)
        sums = tl.zeros([L, V], ACC)
        for od in range(first_d, first_d + n_d):
            dd, rd = tl.load(divisors + od * 2), tl.load(divisors + od * 2 + 1)
            for oh in range(first_h, first_h + n_h):
                dh, rh = tl.load(over_h + oh * 2), tl.load(over_h + oh * 2 + 1)
                row = source + (od * Ho + oh).to(tl.int64) * Wo * step
                for j in tl.static_range(S):
                    g = tl.load(row + j * step, mask=live & (base + j < Wo), other=0).to(ACC)
                    q = over_axes(g, dd, rd, dh, rh, by[j], inverse[j], ONCE, BY_D, BY_H, BY_W)
                    sums = tl.where((bits & (1 << j)) != 0, sums + q, sums)
                if S == 0:
                    for j in range(reach):
                        ok = base + j < Wo
                        dw = tl.load(over_w + j * 2, mask=ok, other=1)
                        rw = tl.load(over_w + j * 2 + 1, mask=ok, other=1)
                        g = tl.load(row + j * step, mask=live & ok, other=0).to(ACC)
                        q = over_axes(g, dd, rd, dh, rh, dw, rw, ONCE, BY_D, BY_H, BY_W)
                        sums = tl.where((j >= low) & (j < low + count), sums + q, sums)
        cells = sums.to(out.dtype.element_ty)
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


@triton.jit(do_not_specialize=["lanes", "groups", "H", "W", "Ho", "Wo", "row_blocks", "magic_g", "shift_g",
                               "magic_r", "shift_r"])  # fmt: skip
def phases(grad, out, divisors, lanes, groups, H, W, Ho, Wo, row_blocks, magic_g, shift_g, magic_r, shift_r,
           L: tl.constexpr, V: tl.constexpr, R: tl.constexpr, KH: tl.constexpr, SH: tl.constexpr,
           PH: tl.constexpr, KW: tl.constexpr, SW: tl.constexpr, PW: tl.constexpr,
           A: tl.constexpr, NA: tl.constexpr, B: tl.constexpr, NB: tl.constexpr,
           EVEN: tl.constexpr, RAGGED: tl.constexpr, LOW: tl.constexpr, WIDE: tl.constexpr,
           HOW: tl.constexpr, SIGNLESS: tl.constexpr):  # fmt: skip
    """Overlapping strided windows of planes. A lane owns R rows of V columns and all their windows.

    R and V are whole numbers of strides, so the windows of a patch are NA·NB neighbours from window
    (A, B) of the patch on, and which of them hold which cell is known when compiling. EVEN: all
    windows have the first one's divisor. RAGGED, LOW: the last patches of a row, of a column hang over.
    SIGNLESS: no quotient is -0, so a sum need not begin with +0.
    """
    ACC: tl.constexpr = divisors.dtype.element_ty
    pid = tl.program_id(0)
    block = floor_over(pid, row_blocks, magic_r, shift_r)
    top = pid - block * row_blocks
    live, plane, group = split_lanes(block, lanes, groups, magic_g, shift_g, L, WIDE)
    a0 = top * (R // SH) + A
    b0 = group * (V // SW) + B
    source = grad + plane * Ho * Wo + b0
    over_h, over_w = divisors + 2, divisors + 2 + Ho * 2
    dd, rd = tl.load(over_h) * tl.load(over_w), tl.load(over_h + 1) * tl.load(over_w + 1)
    quotients = ()
    for i in tl.static_range(NA):
        a = a0 + i
        in_h = a.to(tl.uint32) < Ho.to(tl.uint32)
        row_end = tl.where(in_h, Wo, 0).to(tl.uint32)
        row = source + a.to(tl.int64) * Wo
        for j in tl.static_range(NB):
            held = live & ((b0 + j).to(tl.uint32) < row_end)
            g = tl.load(row + j, mask=held, other=0).to(ACC)
            if EVEN:
                quotients += (quotient(g, dd, rd, HOW),)
            else:
                dh = tl.load(over_h + a * 2, mask=in_h, other=1)
                rh = tl.load(over_h + a * 2 + 1, mask=in_h, other=1)
                dw = tl.load(over_w + (b0 + j) * 2, mask=held, other=1)
                rw = tl.load(over_w + (b0 + j) * 2 + 1, mask=held, other=1)
                quotients += (quotient(g, dh * dw, rh * rw, HOW),)
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
                    first = i == (r + PH - KH) // SH + 1 - A and j == (c + PW - KW) // SW + 1 - B
                    total = quotients[i * NB + j] if SIGNLESS and first else total + quotients[i * NB + j]
            cells += (total,)
        h = top * R + r
        tile = weave(cells, V).to(out.dtype.element_ty)
        mask = inside & (group[:, None] < tl.where(h < H, groups, 0)) if LOW else inside
        tl.store(target + h.to(tl.int64) * width, tile, mask=mask)


INTERPRETED = not isinstance(whole, triton.JITFunction)  # by Triton's interpreter, whose fma rounds twice
