"""Indexed gradients on the GPU: each cell asks the windows that hold it whether their index names it.

    grad_input[cell] = ((0 + g[w0]) + g[w1]) + …       windows w, ascending, with indices[w] == cell

Every cell is written once, with no zero fill and no float atomics. An index may also name a cell
outside its window, or none at all. `rows` meets every index in the first row of its window, and notes
per program whether one strayed. `repair`, the second kernel on the stream, does the planes of such
programs again, asking all windows of the plane, and counts the indices that name no cell.
A clean program costs it one load. Lanes, groups and segments are those of the average gradients.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_average import floor_over, lanes_of


@triton.jit
def strays(index, at_d, at_h, at_w, cells, H, W, magic_h, shift_h, magic_w, shift_w,
           DEEP: tl.constexpr):  # fmt: skip
    """Whether an index lies outside its window, whose (start, end) on each axis are at at_d, at_h, at_w."""
    inside = (index >= 0) & (index < cells)
    x = index.to(tl.int32)
    h = floor_over(x, W, magic_w, shift_w)
    w = x - h * W
    inside = inside & (w >= tl.load(at_w)) & (w < tl.load(at_w + 1))
    if DEEP:
        d = floor_over(h, H, magic_h, shift_h)
        h -= d * H
        inside = inside & (d >= tl.load(at_d)) & (d < tl.load(at_d + 1))
    return ~(inside & (h >= tl.load(at_h)) & (h < tl.load(at_h + 1)))


@triton.jit(do_not_specialize=["lanes", "groups", "inner", "H", "W", "rows", "Ho", "Wo", "windows",
                               "row_segments", "segments", "chunk", "chunks", "repeats", "cells",
                               "magic_h", "shift_h", "magic_w", "shift_w"])  # fmt: skip
def rows(grad, indices, out, flags, edges, columns, spans, lanes, groups, inner, H, W, rows, Ho, Wo,
         windows, row_segments, segments, chunk, chunks, repeats, cells, magic_h, shift_h, magic_w, shift_w,
         L: tl.constexpr, V: tl.constexpr, LAST: tl.constexpr, SHARED: tl.constexpr, K: tl.constexpr,
         DEEP: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """As `rows` of the average gradients; `spans` has each window's (start, end), d, h, then w."""
    ACC: tl.constexpr = tl.float64 if grad.dtype.element_ty == tl.float64 else tl.float32
    pid = tl.program_id(0)
    block = pid // chunks
    live, outer, group = lanes_of(block, lanes, groups, L, WIDE)
    v = tl.arange(0, V)[None, :]
    target = out + (outer * rows * groups + group) * V + v
    if LAST:
        column = group // inner
        place = column
        source = (outer * windows * Wo * inner + group % inner) * V + v
        step = inner * V
    else:
        column = group * V + (0 if SHARED else v)
        place = group * V + v
        source = outer * windows * Wo
        step = 1
    first, count = tl.load(columns + column * 2), tl.load(columns + column * 2 + 1)
    source += first * step
    g_source, i_source = grad + source, indices + source
    span_h = spans + (windows // Ho) * 2
    span_w = span_h + Ho * 2 + tl.minimum(first, Wo - 1) * 2
    of_h = edges + (segments // row_segments) * 4
    astray = tl.zeros([L, 1 if SHARED and not LAST else V], tl.int32)
    begin = (pid - block * chunks) * chunk
    for task in range(begin, tl.minimum(begin + chunk, segments)):
        at_d, at_h = edges + task // row_segments * 4, of_h + task % row_segments * 4
        d0, d1 = tl.load(at_d), tl.load(at_d + 1)
        h0, h1 = tl.load(at_h), tl.load(at_h + 1)
        first_d, first_h = tl.load(at_d + 2), tl.load(at_h + 2)
        n_d, n_h = tl.load(at_d + 3), tl.load(at_h + 3)
        if (K > 0) & (n_d * n_h == 1):
            new = (tl.load(spans + first_d * 2) == d0) & (tl.load(span_h + first_h * 2) == h0)
            row = (first_d * Ho + first_h).to(tl.int64) * Wo * step
            keys, values = (), ()
            for k in tl.static_range(K):
                held = live & (k < count)
                index = tl.load(i_source + row + k * step, mask=held, other=-1)
                values += (tl.load(g_source + row + k * step, mask=held, other=0).to(ACC),)
                keys += (index.to(tl.int32) - place,)
                if new:
                    astray |= (held & strays(index, spans + first_d * 2, span_h + first_h * 2,
                                             span_w + tl.where(k < count, k * 2, 0), cells, H, W,
                                             magic_h, shift_h, magic_w, shift_w, DEEP)).to(tl.int32)  # fmt: skip
            for d in range(d0, d0 + d1):
                for h in range(h0, h0 + h1):
                    start = (d * H + h) * W
                    sums = tl.zeros([L, V], ACC)
                    for k in tl.static_range(K):
                        sums += tl.where(keys[k] == start, values[k], 0.0)
                    cell = target + (d * H + h).to(tl.int64) * groups * V
                    tl.store(cell, sums.to(out.dtype.element_ty), mask=live)
        else:
            for d in range(d0, d0 + d1):
                for h in range(h0, h0 + h1):
                    start = (d * H + h) * W
                    sums = tl.zeros([L, V], ACC)
                    for od in range(first_d, first_d + n_d):
                        for oh in range(first_h, first_h + n_h):
                            new = (tl.load(spans + od * 2) == d) & (tl.load(span_h + oh * 2) == h)
                            row = (od * Ho + oh).to(tl.int64) * Wo * step
                            for k in range(K if K else repeats):
                                held = live & (k < count)
                                index = tl.load(i_source + row + k * step, mask=held, other=-1)
                                g = tl.load(g_source + row + k * step, mask=held, other=0).to(ACC)
                                sums += tl.where(index.to(tl.int32) - place == start, g, 0.0)
                                if new:
                                    astray |= (held & strays(index, spans + od * 2, span_h + oh * 2,
                                                             span_w + tl.where(k < count, k * 2, 0), cells,
                                                             H, W, magic_h, shift_h, magic_w, shift_w,
                                                             DEEP)).to(tl.int32)  # fmt: skip
                    cell = target + (d * H + h).to(tl.int64) * groups * V
                    tl.store(cell, sums.to(out.dtype.element_ty), mask=live)
    tl.store(flags + pid, tl.max(tl.max(astray, 1), 0))


@triton.jit(
    do_not_specialize=["lanes", "groups", "inner", "Ho", "Wo", "windows", "chunks", "splits", "cells"]
)
def repair(grad, indices, out, flags, faults, spans, lanes, groups, inner, Ho, Wo, windows, chunks, splits,
           cells, L: tl.constexpr, V: tl.constexpr, B: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """The planes of the blocks of lanes that met a stray index, by asking every window of the plane.

    Blocks that share a plane write the same sums. An index is counted by the block that has the first
    column of its window. `inner` counts elements, not groups.
    """
    ACC: tl.constexpr = tl.float64 if grad.dtype.element_ty == tl.float64 else tl.float32
    pid = tl.program_id(0)
    block = pid // splits
    split = pid - block * splits
    dirty = 0
    for part in range(0, chunks, B):
        i = part + tl.arange(0, B)
        dirty |= tl.max(tl.load(flags + block.to(tl.int64) * chunks + i, mask=i < chunks, other=0), 0)
    if dirty:
        first = block.to(tl.int64) * L
        last = tl.minimum(first + L, lanes)
        Q = windows.to(tl.int64) * Wo
        volume = cells.to(tl.int64) * inner
        for outer in range(first // groups, (last - 1) // groups + 1):
            for begin in range(split * B, volume, splits * B):
                e = begin + tl.arange(0, B).to(tl.int64)
                cell = e // inner
                channel = e - cell * inner
                sums = tl.zeros([B], ACC)
                for q in range(Q):
                    at = (outer * Q + q) * inner + channel
                    index = tl.load(indices + at, mask=cell < cells, other=-1)
                    g = tl.load(grad + at, mask=cell < cells, other=0).to(ACC)
                    sums += tl.where(index == cell, g, 0.0)
                tl.store(out + outer * volume + e, sums.to(out.dtype.element_ty), mask=e < volume)
            for begin in range(0, tl.where(split == 0, Q * inner, 0), B):
                e = begin + tl.arange(0, B).to(tl.int64)
                q = e // inner
                channel = e - q * inner
                index = tl.load(indices + outer * Q * inner + e, mask=q < Q, other=0)
                w = tl.load(spans + (windows // Ho + Ho + q % Wo) * 2)
                lane = outer * groups + (w * inner + channel) // V
                bad = ((index < 0) | (index >= cells)) & (lane >= first) & (lane < last)
                if tl.max(bad.to(tl.int32), 0):
                    tl.atomic_add(faults, tl.sum(bad.to(tl.int64), 0))
                    position = (outer * inner + channel) * Q + q
                    tl.atomic_min(faults + 1, tl.min(tl.where(bad, position, 0x7FFFFFFFFFFFFFFF), 0))
