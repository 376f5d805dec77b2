"""Indexed gradients on the GPU: a program clears its cells, then each window adds to the cell it names.

    grad_input[cell] = ((0 + g[q0]) + g[q1]) + …       windows q of the plane, ascending, that name the cell

No float atomics: the first window that names a cell writes the whole sum, the others nothing. So each
window asks the others that hold the cell. A program has few enough cells that they are still in the
cache when the windows come.

An index may also name a cell outside its window, or none at all. Where a program meets such a stray, the
whole plane is done again by asking all windows, and the indices that name no cell are counted: by the
program itself if it has whole planes, else by `repair`, which follows. Clean planes pay one comparison
per window. Indices of one byte are offsets in their windows, and decoded as they are read.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .average import floor_over


@triton.jit
def index_of(word, q, held, corners, Do, Ho, Wo, magic_ho, shift_ho, magic_wo, shift_wo):
    """The index of window q, from what stands in `indices`.

    If that is an offset, `corners` has how far each of the 256 jumps, then what the windows of d, h and w add
    to the first cell of a window.
    """
    if word.dtype == tl.uint8:
        row = floor_over(q, Wo, magic_wo, shift_wo)
        d = floor_over(row, Ho, magic_ho, shift_ho)
        corner = tl.load(corners + 256 + d, mask=held, other=0)
        corner += tl.load(corners + (256 + Do) + (row - d * Ho), mask=held, other=0)
        corner += tl.load(corners + (256 + Do + Ho) + (q - row * Wo), mask=held, other=0)
        word = tl.where(held, corner + tl.load(corners + word.to(tl.int32)), -1)
    return word


@triton.jit
def settle(grad, indices, out, faults, corners, outer, split, splits, Q, Do, Ho, Wo, inner, cells, magic_ho,
           shift_ho, magic_wo, shift_wo, B: tl.constexpr):  # fmt: skip
    """All windows of one plane, or of one image whose channels come last, by asking all of the plane.

    One of `splits` equal shares. Indices that name no cell are counted; a cell that is equal to one in 32
    bits, and may so have got its gradient, is done too.
    """
    ACC: tl.constexpr = tl.float64 if grad.dtype.element_ty == tl.float64 else tl.float32
    wide = inner.to(tl.int64)
    size = wide * Q
    for part in range(split * B, size, splits * B):
        at = part + tl.arange(0, B).to(tl.int64)
        q = at // inner
        channel = at - q * inner
        index = tl.load(indices + outer * size + at, mask=at < size, other=0)
        index = index_of(index, q.to(tl.int32), at < size, corners, Do, Ho, Wo, magic_ho, shift_ho,
                         magic_wo, shift_wo)  # fmt: skip
        named = index.to(tl.int32)
        earlier = at >= size
        sums = tl.zeros([B], ACC)
        for k in range(Q):
            there = outer * size + wide * k + channel
            other = index_of(tl.load(indices + there), (q * 0 + k).to(tl.int32), q < Q + B, corners, Do, Ho,
                             Wo, magic_ho, shift_ho, magic_wo, shift_wo)  # fmt: skip
            same = other == named
            earlier |= same & (k < q)
            sums += tl.where(same, tl.load(grad + there).to(ACC), 0.0)
        valid = (index >= 0) & (index < cells)
        cell = out + (outer * cells + named) * inner + channel
        tl.store(cell, sums.to(out.dtype.element_ty), mask=(named >= 0) & (named < cells) & ~earlier)
        lost = ~valid & (at < size)
        if tl.max(lost.to(tl.int32), 0):
            tl.atomic_add(faults, tl.sum(lost.to(tl.int64), 0))
            position = tl.where(lost, (outer * inner + channel) * Q + q, 0x7FFFFFFFFFFFFFFF)
            tl.atomic_min(faults + 1, tl.min(position, 0))


@triton.jit
def ask(grad, indices, corners, image, there, q, inner, index, ok, sums, earlier, Do, Ho, Wo, magic_ho,
        shift_ho, magic_wo, shift_wo):  # fmt: skip
    """What another window that holds the cell changes, if it names the cell too.

    Indices are compared in 32 bits: one that is equal there alone is out of the plane, a stray.
    """
    at = image + there * inner
    other = index_of(tl.load(indices + at, mask=ok, other=-1), there, ok, corners, Do, Ho, Wo, magic_ho,
                     shift_ho, magic_wo, shift_wo)  # fmt: skip
    same = ok & (other.to(tl.int32) == index)
    earlier = earlier | (same & (there < q))
    sums += tl.load(grad + at, mask=same, other=0).to(sums.dtype)
    return sums, earlier


@triton.jit(do_not_specialize=["outers", "share", "count", "cells", "D", "H", "W", "Do", "Ho", "Wo", "Q",
                               "inner", "most_d", "most_h", "most_w", "magic_s", "shift_s", "magic_i",
                               "shift_i", "magic_h", "shift_h", "magic_w", "shift_w", "magic_ho", "shift_ho",
                               "magic_wo", "shift_wo"])  # fmt: skip
def scatter(grad, indices, out, faults, flags, pieces, holders, corners, outers, share, count, cells, D, H, W,
            Do, Ho, Wo, Q, inner, most_d, most_h, most_w, magic_s, shift_s, magic_i, shift_i, magic_h,
            shift_h, magic_w, shift_w, magic_ho, shift_ho, magic_wo, shift_wo,
            B: tl.constexpr, V: tl.constexpr, LAST: tl.constexpr, OWN: tl.constexpr, RAGGED: tl.constexpr,
            MD: tl.constexpr, MH: tl.constexpr, MW: tl.constexpr, DEEP: tl.constexpr):  # fmt: skip
    """A program has `share` whole planes (OWN), or one of the `count` pieces of one plane or image.

    A piece is (first cell, end, window ranges, first window, windows of a range, range to range).
    `holders` has for each d, h, then w where its first window is in the plane, then how many windows it
    is in: MD, MH, MW at most, or most_d, most_h, most_w where MD is 0. RAGGED: a program's cells are no
    whole number of V neighbours.
    """
    ACC: tl.constexpr = tl.float64 if grad.dtype.element_ty == tl.float64 else tl.float32
    pid = tl.program_id(0).to(tl.int64)
    outer = pid // count
    piece = pieces + (pid - outer * count) * 6
    outer *= share
    begin, end = tl.load(piece), tl.load(piece + 1)
    head, length, stride = (tl.load(piece + 3) * inner, tl.load(piece + 4) * inner,
                            tl.load(piece + 5) * inner)  # fmt: skip
    fill = (end - begin) * inner
    size = Q * inner
    if OWN:
        own = tl.minimum(outers - outer, share).to(tl.int32)
        fill *= own
        length *= own
    my_grad, my_indices = grad + outer * size, indices + outer * size
    my_out = out + outer * cells * inner
    at = head + tl.arange(0, B)
    next_index = tl.load(my_indices + at, mask=at < head + length, other=-1)
    next_g = tl.load(my_grad + at, mask=at < head + length, other=0)
    start = (outer * cells + begin) * inner
    v = tl.arange(0, V)[None, :]
    zeros = tl.zeros([B, V], out.dtype.element_ty)
    for part in range(0, fill, B * V):
        group = part // V + tl.arange(0, B)[:, None]
        if RAGGED:
            tl.store(out + start + group * V + v, zeros, mask=group * V + v < fill)
        else:
            tl.store(out + (start // V + group) * V + v, zeros, mask=group < fill // V)
    tl.debug_barrier()
    astray = tl.zeros([B], tl.int1)
    parts = (length + B - 1) // B
    turns = tl.load(piece + 2) * parts
    many = holders + D + H + W
    for turn in range(turns):
        low = head + turn // parts * stride
        at = low + turn % parts * B + tl.arange(0, B)
        held = at < low + length
        word, g = next_index, next_g.to(ACC)
        low = head + (turn + 1) // parts * stride
        ahead = low + (turn + 1) % parts * B + tl.arange(0, B)
        more = ahead < tl.where(turn + 1 < turns, low + length, 0)
        next_index = tl.load(my_indices + ahead, mask=more, other=-1)
        next_g = tl.load(my_grad + ahead, mask=more, other=0)
        q, near = at, 0
        if OWN:
            near = floor_over(at, size, magic_s, shift_s)
            q = at - near * size
        channel = 0
        if LAST:
            within = floor_over(q, inner, magic_i, shift_i)
            channel = q - within * inner
            q = within
        index = index_of(word, q, held, corners, Do, Ho, Wo, magic_ho, shift_ho, magic_wo, shift_wo)
        valid = index.to(tl.uint64) < cells.to(tl.uint64)
        x = tl.where(valid, index.to(tl.int32), 0)
        h = floor_over(x, W, magic_w, shift_w)
        w = x - h * W
        d = x * 0
        if DEEP:
            d = floor_over(h, H, magic_h, shift_h)
            h -= d * H
        first = tl.load(holders + d) + tl.load(holders + D + h) + tl.load(holders + (D + H) + w)
        mine = valid & ((x - begin).to(tl.uint32) < (end - begin).to(tl.uint32))
        earlier = ~mine
        sums = tl.zeros([B], ACC)
        if MD == 1 and MH == 1 and MW == 1:
            sums += g
            inside = valid & (first == q)
        else:
            image = near * size + channel
            inside = x < 0
            n_d, n_h = tl.load(many + d), tl.load(many + D + h)
            n_w = tl.load(many + (D + H) + w)
            if MD > 0:
                for i in tl.static_range(MD):
                    for j in tl.static_range(MH):
                        for k in tl.static_range(MW):
                            there = first + (i * Ho + j) * Wo + k
                            ok = valid & (i < n_d) & (j < n_h) & (k < n_w)
                            inside |= ok & (there == q)
                            sums, earlier = ask(my_grad, my_indices, corners, image, there, q, inner, x,
                                                ok & mine, sums, earlier, Do, Ho, Wo, magic_ho, shift_ho,
                                                magic_wo, shift_wo)  # fmt: skip
            else:
                for i in range(most_d):
                    for j in range(most_h):
                        for k in range(most_w):
                            there = first + (i * Ho + j) * Wo + k
                            ok = valid & (i < n_d) & (j < n_h) & (k < n_w)
                            inside |= ok & (there == q)
                            sums, earlier = ask(my_grad, my_indices, corners, image, there, q, inner, x,
                                                ok & mine, sums, earlier, Do, Ho, Wo, magic_ho, shift_ho,
                                                magic_wo, shift_wo)  # fmt: skip
        astray |= held & ~inside
        cell = x * inner + channel if LAST else near * cells + x
        tl.store(my_out + cell, sums.to(out.dtype.element_ty), mask=~earlier)
    found = tl.max(astray.to(tl.int32), 0)
    if OWN:
        if found:
            tl.debug_barrier()
            for i in range(length // Q):
                settle(grad, indices, out, faults, corners, outer + i, 0, 1, Q, Do, Ho, Wo, inner, cells,
                       magic_ho, shift_ho, magic_wo, shift_wo, B)  # fmt: skip
    else:
        tl.store(flags + pid, found)


@triton.jit(do_not_specialize=["splits", "count", "cells", "Q", "Do", "Ho", "Wo", "inner", "magic_ho",
                               "shift_ho", "magic_wo", "shift_wo"])  # fmt: skip
def repair(grad, indices, out, faults, flags, corners, splits, count, cells, Q, Do, Ho, Wo, inner, magic_ho,
           shift_ho, magic_wo, shift_wo, B: tl.constexpr):  # fmt: skip
    """The planes or images in whose pieces `scatter` met a stray."""
    pid = tl.program_id(0).to(tl.int64)
    outer = pid // splits
    found = 0
    for part in range(0, count, B):
        i = part + tl.arange(0, B)
        found |= tl.max(tl.load(flags + outer * count + i, mask=i < count, other=0), 0)
    if found:
        settle(grad, indices, out, faults, corners, outer, pid - outer * splits, splits, Q, Do, Ho, Wo, inner,
               cells, magic_ho, shift_ho, magic_wo, shift_wo, B)  # fmt: skip


@triton.jit(do_not_specialize=["parts", "size", "Do", "Ho", "Wo", "inner", "plane", "W", "step_d", "step_h",
                               "step_w", "most_h", "most_w", "magic_i", "shift_i", "magic_ho", "shift_ho",
                               "magic_wo", "shift_wo", "magic_p", "shift_p", "magic_w", "shift_w", "magic_sd",
                               "shift_sd", "magic_sh", "shift_sh", "magic_sw", "shift_sw"])  # fmt: skip
def compact(indices, offsets, corners, parts, size, Do, Ho, Wo, inner, plane, W, step_d, step_h, step_w,
            most_h, most_w, magic_i, shift_i, magic_ho, shift_ho, magic_wo, shift_wo, magic_p, shift_p,
            magic_w, shift_w, magic_sd, shift_sd, magic_sh, shift_sh, magic_sw, shift_sw,
            B: tl.constexpr):  # fmt: skip
    """Indices that lie in their windows, as offsets there; one part of a plane, or of an image."""
    pid = tl.program_id(0).to(tl.int64)
    outer = pid // parts
    at = (pid - outer * parts).to(tl.int32) * B + tl.arange(0, B)
    held = at < size
    index = tl.load(indices + outer * size + at, mask=held, other=0)
    q = floor_over(at, inner, magic_i, shift_i)
    zero = (q * 0).to(tl.uint8)
    corner = index_of(zero, q, held, corners, Do, Ho, Wo, magic_ho, shift_ho, magic_wo, shift_wo)
    far = index.to(tl.int32) - corner
    d = floor_over(far, plane, magic_p, shift_p)
    far -= d * plane
    h = floor_over(far, W, magic_w, shift_w)
    w = floor_over(far - h * W, step_w, magic_sw, shift_sw)
    d, h = floor_over(d, step_d, magic_sd, shift_sd), floor_over(h, step_h, magic_sh, shift_sh)
    found = (d * most_h + h) * most_w + w
    tl.store(offsets + outer * size + at, found.to(tl.uint8), mask=held)
