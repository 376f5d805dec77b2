"""Indexed gradients on the GPU where windows are small: each cell asks the windows that hold it, once.

    grad_input[cell] = ((0 + g[q0]) + g[q1]) + …       windows q, ascending, whose index is the cell

Every cell is written once, with no zeros first. A lane owns a patch of cells and loads all windows of it,
neighbours on every axis; which of them may hold which cell is known when compiling.

An index may also name a cell outside its window, or none at all. Some windows of each patch, together all
of the plane, are checked, and every warp notes whether one strayed. `mend`, the second kernel on the
stream, does the planes of such warps again.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .average import floor_over, split_lanes, weave
from .indexed import settle


@triton.jit(do_not_specialize=["lanes", "groups", "D", "H", "W", "Do", "Ho", "Wo", "d_blocks", "h_blocks",
                               "inner", "magic_g", "shift_g", "magic_i", "shift_i", "magic_r", "shift_r",
                               "magic_b", "shift_b", "magic_h", "shift_h", "magic_w", "shift_w"])  # fmt: skip
def patches(grad, indices, out, faults, flags, bases, spans, corners, lanes, groups, D, H, W, Do, Ho, Wo,
            d_blocks, h_blocks, inner, magic_g, shift_g, magic_i, shift_i, magic_r, shift_r, magic_b, shift_b,
            magic_h, shift_h, magic_w, shift_w,
            L: tl.constexpr, RD: tl.constexpr, RH: tl.constexpr, V: tl.constexpr,
            ND: tl.constexpr, NH: tl.constexpr, NW: tl.constexpr,
            LOW_D: tl.constexpr, LOW_H: tl.constexpr, LOW_W: tl.constexpr,
            HIGH_D: tl.constexpr, HIGH_H: tl.constexpr, HIGH_W: tl.constexpr,
            SEEN_D: tl.constexpr, SEEN_H: tl.constexpr, SEEN_W: tl.constexpr,
            TAPS_D: tl.constexpr, TAPS_H: tl.constexpr, TAPS_W: tl.constexpr,
            MOST_H: tl.constexpr, MOST_W: tl.constexpr,
            DEEP: tl.constexpr, RAGGED: tl.constexpr, OVER: tl.constexpr, WIDE: tl.constexpr,
            LAST: tl.constexpr):  # fmt: skip
    """A patch is RD × RH × V cells in ND × NH × NW windows, from `bases` of its block of d, h and w on.

    Cell i of an axis may be in windows LOW to HIGH of these, four bits a cell. The first SEEN windows of an
    axis are checked against `spans`, (start, length) of every window of d, h, then w. RAGGED, OVER: the
    last patches of a row, of a column or of the depth hang over. LAST: neighbours in memory are `inner`
    channels, each a lane.

    Indices of one byte are offsets in their windows. Where MOST_W, the most cells of a window on w, is given,
    so are the TAPS: which cell of window j of an axis cell i is, four bits each, 15 for none. Then `spans`
    has a bit for each offset that a window of d, h, then w allows, and `corners` what its cells outside the
    plane, which offsets don't count, make up for. Else `corners` leads to indices as in `index_of`.
    """
    ACC: tl.constexpr = tl.float64 if grad.dtype.element_ty == tl.float64 else tl.float32
    pid = tl.program_id(0)
    block = floor_over(pid, d_blocks * h_blocks, magic_r, shift_r)
    top = pid - block * (d_blocks * h_blocks)
    td = floor_over(top, h_blocks, magic_b, shift_b)
    th = top - td * h_blocks
    live, plane, group = split_lanes(block, lanes, groups, magic_g, shift_g, L, WIDE)
    channel, step = 0, 1
    if LAST:
        channel, step = group, inner
        group = floor_over(group, inner, magic_i, shift_i)
        channel -= group * inner
    e0, a0 = tl.load(bases + td), tl.load(bases + d_blocks + th)
    b0 = tl.load(bases + d_blocks + h_blocks + group)
    of_h, of_w = spans + Do * 2, spans + (Do + Ho) * 2
    source = plane * (Do * Ho * Wo * step) + b0 * step + channel
    b0 = tl.where(live, b0, -0x40000000)
    starts, lengths = (), ()
    for j in tl.static_range(SEEN_W):
        held = (b0 + j).to(tl.uint32) < Wo.to(tl.uint32)
        if MOST_W:
            starts += (tl.load(spans + (Do + Ho) + b0 + j, mask=held, other=-1),)
        else:
            starts += (tl.load(of_w + (b0 + j) * 2, mask=held, other=0),)
            lengths += (tl.load(of_w + (b0 + j) * 2 + 1, mask=held, other=0),)
    CODED: tl.constexpr = indices.dtype.element_ty == tl.uint8
    firsts = ()
    for j in tl.static_range(NW if CODED else 0):
        held = (b0 + j).to(tl.uint32) < Wo.to(tl.uint32)
        firsts += (
            tl.load(corners + (256 + Do + Ho) + b0 + j, mask=held, other=0) - group * V * (not MOST_W),
        )
    g_source, i_source = grad + source, indices + source
    corner_cell = (td * RD * H + th * RH) * W
    origin = corner_cell + group * V
    astray = group < 0
    sound = group * 0 - 1
    keys, values = (), ()
    for e in tl.static_range(ND):
        for i in tl.static_range(NH):
            od, oh = e0 + e, a0 + i
            held_row = (od.to(tl.uint32) < Do.to(tl.uint32)) & (oh.to(tl.uint32) < Ho.to(tl.uint32))
            row_end = tl.where(held_row, Wo, 0).to(tl.uint32)
            row = (od * Ho + oh) * Wo
            if CODED:
                corner = tl.load(corners + 256 + od, mask=held_row, other=0)
                corner += tl.load(corners + (256 + Do) + oh, mask=held_row, other=0)
            if MOST_W:
                ok = tl.load(spans + od, mask=held_row, other=-1)
                ok &= tl.load(spans + Do + oh, mask=held_row, other=-1)
            for j in tl.static_range(NW):
                held = (b0 + j).to(tl.uint32) < row_end
                index = tl.load(i_source + (row + j) * step, mask=held, other=0 if MOST_W else -1)
                values += (tl.load(g_source + (row + j) * step, mask=held, other=0).to(ACC),)
                if MOST_W:
                    keys += (index.to(tl.int32) + (corner + firsts[j]),)
                elif CODED:  # offset 255 leads nowhere
                    keys += (tl.load(corners + index.to(tl.int32)) + (corner - corner_cell) + firsts[j],)
                    index = keys[(e * NH + i) * NW + j] + origin
                else:
                    keys += (index.to(tl.int32) - origin,)
                if e < SEEN_D and i < SEEN_H and j < SEEN_W and MOST_W:
                    sound &= (ok & starts[j]) >> tl.minimum(index.to(tl.int32), 31)
                elif e < SEEN_D and i < SEEN_H and j < SEEN_W:
                    x = index.to(tl.int32)
                    h = floor_over(x, W, magic_w, shift_w)
                    w = x - h * W
                    if index.dtype == tl.int64:
                        good = index.to(tl.uint64) < (D * H * W).to(tl.uint64)
                    else:
                        good = x.to(tl.uint32) < (D * H * W).to(tl.uint32)
                    good = good & ((w - starts[j]).to(tl.uint32) < lengths[j].to(tl.uint32))
                    if DEEP:
                        d = floor_over(h, H, magic_h, shift_h)
                        h -= d * H
                        d -= tl.load(spans + od * 2, mask=held_row, other=0)
                        most = tl.load(spans + od * 2 + 1, mask=held_row, other=0)
                        good = good & (d.to(tl.uint32) < most.to(tl.uint32))
                    h -= tl.load(of_h + oh * 2, mask=held_row, other=0)
                    most = tl.load(of_h + oh * 2 + 1, mask=held_row, other=0)
                    good = good & (h.to(tl.uint32) < most.to(tl.uint32))
                    astray = astray | (held & ~good)
    warps: tl.constexpr = L // 32
    strays = ~sound & 1 if MOST_W else astray.to(tl.int32)
    found = tl.max(tl.reshape(strays, [warps, 32]), 1)
    tl.store(flags + pid * warps + tl.arange(0, warps), found)
    if LAST:
        target = out + plane * (D * H * W * inner) + group * (V * inner) + channel
    else:
        column = group[:, None] * V + tl.arange(0, V)[None, :]
        inside = live[:, None]
        width = groups * V
        if RAGGED:
            inside = inside & (column < W)
            width = W
        target = out + (plane * (D * H))[:, None] * width + column
    for d in tl.static_range(RD):
        for r in tl.static_range(RH):
            cells = ()
            for c in tl.static_range(V):
                total = tl.zeros([L], ACC)
                for e in tl.static_range((LOW_D >> 4 * d) & 15, (HIGH_D >> 4 * d) & 15):
                    for i in tl.static_range((LOW_H >> 4 * r) & 15, (HIGH_H >> 4 * r) & 15):
                        for j in tl.static_range((LOW_W >> 4 * c) & 15, (HIGH_W >> 4 * c) & 15):
                            key, value = keys[(e * NH + i) * NW + j], values[(e * NH + i) * NW + j]
                            if MOST_W:
                                tap_d, tap_h = (
                                    (TAPS_D >> 64 * d + 4 * e) & 15,
                                    (TAPS_H >> 64 * r + 4 * i) & 15,
                                )
                                tap_w = (TAPS_W >> 64 * c + 4 * j) & 15
                                if tap_d < 15 and tap_h < 15 and tap_w < 15:
                                    named = key == (tap_d * MOST_H + tap_h) * MOST_W + tap_w
                                    total = tl.where(named, total + value, total)
                            else:
                                named = key == (d * H + r) * W + c
                                total = tl.where(named, total + value, total)
                cells += (total,)
            z, y = td * RD + d, th * RH + r
            if LAST:
                end = tl.where((z < D) & (y < H), W, 0) if OVER else W
                for c in tl.static_range(V):
                    mask = live & (group * V + c < end) if RAGGED or OVER else live
                    place = target + ((z * H + y) * W + c) * inner
                    tl.store(place, cells[c].to(out.dtype.element_ty), mask=mask)
            else:
                tile = weave(cells, V).to(out.dtype.element_ty)
                mask = inside & (group[:, None] < tl.where((z < D) & (y < H), groups, 0)) if OVER else inside
                tl.store(target + (z * H + y) * width, tile, mask=mask)


@triton.jit
def met(flags, first, end, B: tl.constexpr):
    """Whether one of the flags first…end − 1 is set."""
    found = 0
    for part in range(first, end, B):
        i = part + tl.arange(0, B)
        found |= tl.max(tl.load(flags + i, mask=i < end, other=0), 0)
    return found


@triton.jit(do_not_specialize=["planes", "share", "groups", "splits", "row_blocks", "cells", "Q", "Do", "Ho",
                               "Wo", "inner", "magic_ho", "shift_ho", "magic_wo", "shift_wo"])  # fmt: skip
def mend(grad, indices, out, faults, flags, corners, planes, share, groups, splits, row_blocks, cells, Q, Do,
         Ho, Wo, inner, magic_ho, shift_ho, magic_wo, shift_wo,
         L: tl.constexpr, B: tl.constexpr):  # fmt: skip
    """The planes of the warps in which `patches` met a stray: `share` planes, or part of one."""
    per_block = row_blocks * (L // 32)
    pid = tl.program_id(0).to(tl.int64)
    low = pid // splits * share
    high = tl.minimum(low + share, planes)
    if met(flags, low * groups // L * per_block, ((high * groups - 1) // L + 1) * per_block, B):
        for plane in range(low, high):
            if met(
                flags, plane * groups // L * per_block, (((plane + 1) * groups - 1) // L + 1) * per_block, B
            ):
                settle(grad, indices, out, faults, corners, plane, pid % splits, splits, Q, Do, Ho, Wo, inner,
                       cells, magic_ho, shift_ho, magic_wo, shift_wo, B)  # fmt: skip
