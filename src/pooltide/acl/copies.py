"""Takes calls that copy and fill memory: an address of the device, or an address or array of the host.

Copies or fills the bytes, at once or as a job of a stream, and returns a status. It must not touch tensors,
nor allocate memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ..operators.call import is_int
from .contexts import aclrtContext, current_context
from .copy_sides import HOST_TO_HOST, KIND_NAMES, Side, copy_rows, copy_sides, filled
from .error_reports import INTERNAL, RT_INVALID, UNSUPPORTED, Refused, entry_point, report
from .races import wait_for
from .state import STATE, edition_from
from .stream_queue import QUICK_BYTES, Job, Stream
from .streams import live_stream


@entry_point(int)
def aclrtMemcpy(dst: Any, destMax: int, src: Any, count: int, kind: int) -> int:
    """Copy `count` bytes. A device side is an address, a host side an array or an address."""
    context = current_context()
    if (sides := copy_sides(dst, destMax, src, count, kind)) is not None:
        _copy_now("aclrtMemcpy", context, *sides)
    return 0


def _copy_now(title: str, context: aclrtContext, target: Side, source: Side) -> None:
    _report_overlap(title, target, source)
    _report_other_devices(title, context, target, source)
    target.range.report_missing_wait(title)
    if not source.range.report_missing_wait(title) and (fault := source.never_written()):
        report(title, fault, RT_INVALID, origins=source.range.block.origins)
    _copy(target, source)


def _report_other_devices(title: str, context: aclrtContext, *sides: Side) -> None:
    """Reports memory of a device that the thread neither uses nor may access."""
    for side in sides:
        device = side.range.block.device
        if side.device and device != context.device and device not in context.peers:
            must = f"call aclrtSetDevice({device}), or aclrtDeviceEnablePeerAccess({device}, 0), first"
            side.range.report_other_device(title, context, RT_INVALID, must)


def _report_overlap(title: str, target: Side, source: Side) -> None:
    """Reports a copy whose source and target share bytes."""
    if source.range.overlaps(target.range):
        text = f"src is {source.range.address:#x}, and shares bytes with dst; it must be other memory."
        effect = " The bytes of src are read first."
        report(title, text, RT_INVALID, effect=effect, origins=source.range.block.origins)


def _copy(target: Side, source: Side) -> None:
    shared = np.may_share_memory(target.data, source.data)
    target.data[...] = source.data.copy() if shared else source.data
    target.mark_written()


def _fill(target: Side, value: int) -> None:
    target.data[:] = int(value) & 255
    target.mark_written()


@entry_point(int)
def aclrtMemcpyAsync(dst: Any, destMax: int, src: Any, count: int, kind: int, stream: Stream | None) -> int:
    """Queue a copy on a stream. With host memory that aclrtMallocHost did not give out, also wait for it.

    Memory of aclrtMallocHost must live until the stream has done the copy.
    """
    sides = partial(copy_sides, dst, destMax, src, count, kind)
    return _queue_copy("aclrtMemcpyAsync", kind, stream, sides)


@entry_point(int)
def aclrtMemcpy2d(dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: int) -> int:
    """Copy `height` rows of `width` bytes between the host and the device; rows are a pitch apart."""
    context = current_context()
    if (sides := copy_rows(dst, dpitch, src, spitch, width, height, kind)) is not None:
        _copy_now("aclrtMemcpy2d", context, *sides)
    return 0


@entry_point(int)
def aclrtMemcpy2dAsync(
    dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: int, stream: Stream | None
) -> int:
    """The same as aclrtMemcpy2d, queued on a stream; of host memory, the same as in aclrtMemcpyAsync."""
    sides = partial(copy_rows, dst, dpitch, src, spitch, width, height, kind)
    return _queue_copy("aclrtMemcpy2dAsync", kind, stream, sides)


def _queue_copy(
    title: str, kind: Any, stream: Any, find_sides: Callable[[], tuple[Side, Side] | None]
) -> int:
    with STATE.lock:
        queue = live_stream(stream)
        if is_int(kind) and kind == HOST_TO_HOST:
            _refuse_host_to_host(f"kind is {KIND_NAMES[HOST_TO_HOST]}")
        if (sides := find_sides()) is None:
            return 0
        target, source = sides
        if not (target.device or source.device):
            _refuse_host_to_host("dst and src are host memory")
        _report_overlap(title, target, source)
        _report_other_devices(title, current_context(), target, source)
        _report_pageable(title, target, source)
        checks = STATE.checks
        if target.pageable or source.pageable:
            queue.refuse_endless_wait()

        def run() -> None:
            if fault := source.never_written():
                report(title, fault, INTERNAL, checks, origins=source.range.block.origins)
            _copy(target, source)

        job = _submit(title, queue, run, target, source)
        done = {queue: job, **queue.clock}
    if target.pageable or source.pageable:
        queue.wait(job=job)
        wait_for(done)
    return 0


def _report_pageable(title: str, *sides: Side) -> None:
    """Reports ordinary host memory where the edition forbids it."""
    if edition_from("8.5"):
        return
    for side in sides:
        if side.pageable:
            text = (
                f"{side.range.name} is {side.range.address:#x}, host memory that aclrtMallocHost did not "
                f"give out; in CANN {STATE.edition} it must be memory of aclrtMallocHost."
            )
            report(title, text, RT_INVALID, effect=" The call waits for the copy, as CANN 8.5 does.")


def _refuse_host_to_host(what: str) -> NoReturn:
    must = "dst or src must be device memory; aclrtMemcpy copies from host to host."
    raise Refused(UNSUPPORTED, f"{what}; {must}")


def _submit(title: str, stream: Stream, run: Callable[[], None], *sides: Side) -> int:
    """Submit the job `run`, which uses the memory of these sides, if that memory still exists then.

    Returns the number of the job.
    """
    for side in sides:
        side.report_race(title, stream)
    checks = STATE.checks

    def run_if_alive() -> None:
        for side in sides:
            if not side.range.block.alive:
                what = f"{side.range.name} is {side.range.address:#x}, in a block that was freed"
                must = "it must live until the stream is done."
                report(title, f"{what} before the stream reached it; {must}", INTERNAL, checks)
                return
        run()

    quick = sides[0].data.nbytes <= QUICK_BYTES
    job = Job(title, run_if_alive, quick=quick)
    number = stream.require_submit(job, RT_INVALID)
    for side in sides:
        side.range.add_use(job, stream, number)
    return number


@entry_point(int)
def aclrtMemset(devPtr: Any, maxCount: int, value: int, count: int) -> int:
    """Fill `count` bytes of device or host memory with the low byte of `value`."""
    context = current_context()
    if (target := filled(devPtr, maxCount, value, count)) is not None:
        _report_other_devices("aclrtMemset", context, target)
        target.range.report_missing_wait("aclrtMemset")
        _fill(target, value)
    return 0


@entry_point(int)
def aclrtMemsetAsync(devPtr: Any, maxCount: int, value: int, count: int, stream: Stream | None) -> int:
    """Queue a fill on a stream."""
    with STATE.lock:
        queue = live_stream(stream)
        if (target := filled(devPtr, maxCount, value, count)) is not None:
            _report_other_devices("aclrtMemsetAsync", current_context(), target)
            _submit("aclrtMemsetAsync", queue, partial(_fill, target, value), target)
    return 0
