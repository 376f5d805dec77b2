"""Drawn programs of the documented interface: calls in any order, good and bad handles, several threads."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from pooltide.operators.catalog import documented
from pooltide.operators.dtypes import DTYPES, FORMATS
from pooltide.operators.pages import Operator, Parameter

from . import problems
from .acl_programs import Program, Ref, Step
from .calls import MEMORY

STEPS = 12
Drawn = problems.Problem | problems.Regions
PADDED = {"kernel": "kernel_size", "stride": "stride", "padding": "padding", "dilation": "dilation"}
STRANGE = [
    None,
    0,
    1,
    7,
    -5,
    64,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    10**40,
    -(2**63),
    1.5,
    "x",
    b"x",
    True,
    (),
    object(),
    [3],
]


def draw(rng: Random) -> Program:
    MEMORY.begin()
    program = Program([], rng.choice((1, 1, 1, 1, 1, 3)), [])
    while len(program.steps) < STEPS:
        if rng.random() < 0.25:
            _operator(rng, program)
        else:
            program.steps.append(_single(rng, program))
    for step in program.steps:
        # A host address that is no address ends a C program, and this one: copies and fills get none.
        strange = [v for v in STRANGE if not isinstance(v, int)] if "Mem" in step.name else STRANGE
        step.arguments = tuple(rng.choice(strange) if rng.random() < 0.04 else a for a in step.arguments)
        step.thread = rng.randrange(program.threads)
    return program


def _ref(rng: Random, kind: str) -> Ref:
    return Ref(
        kind, rng.choice((0, 0, 0, 1, 2, 3)), rng.choice((0, 0, 0, 0, 1, 8, 100)) if kind == "address" else 0
    )


def _single(rng: Random, program: Program) -> Step:
    """One call of the runtime."""
    name = rng.choice(list(CALLS))
    return Step(name, CALLS[name](rng, program))


def _copy(rng: Random, program: Program) -> tuple[Any, ...]:
    kind = rng.choice((0, 1, 1, 1, 2, 2, 2, 3, 9))
    count = rng.choice((0, 1, 8, 16, 64, 200, 4096))
    sides = []
    for device, written in ((kind in (1, 3), True), (kind in (2, 3), False)):
        where = MEMORY.place(rng, (rng.choice((1, 8, 64, 200, 4096)),), 1, "planes")
        if written:
            program.written.append(where)
        host = where.array(np.uint8)
        if rng.random() < 0.05:
            host.setflags(write=False)
        given = host if rng.random() < 0.7 or count > where.shape[0] else int(host.ctypes.data)
        # The wrong kind of side now and then; never an address that the copy would leave.
        wrong = rng.random() < 0.05
        sides.append(_ref(rng, "address") if device != wrong else given)
    return sides[0], rng.choice((count, count, 4096, count - 1)), sides[1], count, kind


def _tensor(rng: Random, program: Program) -> tuple[Any, ...]:
    rank = rng.choice((0, 1, 3, 4, 4, 5, 5, 70))
    shape = [
        rng.choice((0, 1, 2, 3, 5, 5, 7, -1, 2**40)) if rng.random() < 0.3 else rng.randint(1, 6)
        for _ in range(rank)
    ]
    strides = rng.choice((None, None, [1] * rank, [rng.randint(-3, 9) for _ in shape], [2**62] * rank, [1]))
    offset = rng.choice((0, 0, 0, 1, 5, -1, 2**62, -(2**63)))
    storage = rng.choice((shape, [4096], []))
    codes = [dtype.code for dtype in DTYPES.values()]
    return (
        shape,
        rng.choice(codes),
        strides,
        offset,
        rng.choice(list(FORMATS.values())),
        storage,
        _ref(rng, "address"),
    )


def _copy_rows(rng: Random, program: Program) -> tuple[Any, ...]:
    """A copy of rows. Its host side is an array, which lives as long as the job."""
    kind = rng.choice((1, 1, 2, 2, 3, 4, 9))
    width, height = rng.choice((0, 1, 4, 60)), rng.choice((0, 1, 3, 20, 10**7))
    dpitch, spitch = (rng.choice((width, 64, 64, 1, 2**62)) for _ in range(2))
    host, device = np.zeros(4096, np.uint8), _ref(rng, "address")
    dst, src = (device, host) if kind == 1 else (host, device)
    return dst, dpitch, src, spitch, width, height, kind


def _copy_later(rng: Random, program: Program) -> tuple[Any, ...]:
    """A copy on a stream. Its host sides are arrays, which live as long as the job."""
    dst, most, src, count, kind = _copy(rng, program)
    sides = [np.zeros(4096, np.uint8) if isinstance(side, int) else side for side in (dst, src)]
    return sides[0], most, sides[1], count, kind, rng.choice((None, _ref(rng, "stream")))


def _fill(rng: Random, program: Program) -> tuple[Any, ...]:
    count = rng.choice((0, 1, 8, 200))
    return _ref(rng, "address"), rng.choice((count, 4096, 0)), rng.choice((0, -1, 300, 2**40)), count


def _on(call: Any) -> Any:
    """The same arguments, and a stream."""
    return lambda r, p: (*call(r, p), r.choice((None, _ref(r, "stream"))))


def _new_address(rng: Random, program: Program) -> tuple[Any, ...]:
    return _ref(rng, "executor"), rng.choice((0, 0, 1, 2, 9, -1)), _ref(rng, "tensor"), _ref(rng, "address")


def _one(kind: str) -> Any:
    return lambda r, p: (_ref(r, kind),)


CALLS: dict[str, Any] = {
    "aclInit": lambda r, p: (r.choice((None, None, "/nonexistent", "/dev/null", "\0", 7)),),
    "aclrtSetDevice": lambda r, p: (r.choice((0, 0, 1, -1)),),
    "aclrtResetDeviceForce": lambda r, p: (r.choice((0, 3)),),
    "aclrtQueryDeviceStatus": lambda r, p: (r.choice((0, 3)),),
    "aclrtGetDeviceCapability": lambda r, p: (r.choice((0, 3)), r.choice((1, 21, 5))),
    "aclrtDeviceDisablePeerAccess": lambda r, p: (r.choice((0, 1)),),
    "aclrtMallocWithCfg": lambda r, p: (r.choice((1, 100, 0, 2**62)), r.choice((0, 9)), None),
    "aclrtMallocHostWithCfg": lambda r, p: (r.choice((1, 100, 0)), None),
    "aclrtHostRegister": lambda r, p: (_ref(r, r.choice(("host", "host", "address"))), r.choice((1, 8, 4096, 0)), r.choice((0, 1))),
    "aclrtHostUnregister": lambda r, p: (_ref(r, "host"),),
    "aclrtMemcpy2d": _copy_rows,
    "aclrtMemcpy2dAsync": lambda r, p: (*_copy_rows(r, p), r.choice((None, _ref(r, "stream")))),
    "aclrtStreamGetId": lambda r, p: (r.choice((None, _ref(r, "stream"))),),
    "aclrtSubscribeReport": lambda r, p: (r.choice((1, 7, 0)), _ref(r, "stream")),
    "aclrtUnSubscribeReport": lambda r, p: (r.choice((1, 7, 0)), _ref(r, "stream")),
    "aclrtLaunchCallback": lambda r, p: (r.choice((repr, None, 7)), 1, r.choice((0, 0, 5)), _ref(r, "stream")),
    "aclrtProcessReport": lambda r, p: (r.choice((1, 2, 0)),),
    "aclrtGetLastError": lambda r, p: (0,),
    "aclrtPeekAtLastError": lambda r, p: (0,),
    "aclrtSetOpExecuteTimeOut": lambda r, p: (r.choice((0, 1, -1)),),
    **{f"aclrtGet{fact}FromExceptionInfo": lambda r, p: (r.choice((None, 7)),)
       for fact in ("TaskId", "StreamId", "ThreadId", "DeviceId", "ErrorCode")},
    "aclrtResetDevice": lambda r, p: (r.choice((0, 0, 3)),),
    "aclrtCreateStream": lambda r, p: (),
    "aclrtDestroyStream": lambda r, p: (_ref(r, "stream"),),
    "aclrtSynchronizeStream": lambda r, p: (r.choice((None, _ref(r, "stream"))),),
    "aclrtMalloc": lambda r, p: (r.choice((1, 8, 100, 4096, 65536, 0, -1, 2**62, 2**64)), r.choice((0, 0, 1, 2, 9))),
    "aclrtFree": lambda r, p: (_ref(r, "address"),),
    "aclrtMemcpy": _copy,
    "aclrtCtxSetSysParamOpt": lambda r, p: (r.choice((0, 0, 5)), r.choice((0, 1, 2, 3, 4, -1))),
    "aclrtCtxGetSysParamOpt": lambda r, p: (r.choice((0, 0, 5)),),
    "aclGetRecentErrMsg": lambda r, p: (),
    "aclCreateTensor": _tensor,
    "aclDestroyTensor": lambda r, p: (_ref(r, "tensor"),),
    "aclCreateIntArray": lambda r, p: (r.choice(([3], [2, 2], [], [0], [-1, 2**62], [2**63], np.array([3, 3]), [1.5])),),
    "aclDestroyIntArray": lambda r, p: (_ref(r, "array"),),
    "aclSetAclOpExecutorRepeatable": lambda r, p: (_ref(r, "executor"),),
    "aclDestroyAclOpExecutor": lambda r, p: (_ref(r, "executor"),),
    **{name: (lambda r, p: ()) for name in (
        "aclrtGetDevice", "aclrtGetDeviceCount", "aclrtGetRunMode", "aclrtSynchronizeDevice", "aclrtGetCurrentContext",
        "aclrtCreateEvent", "aclrtGetVersion", "aclnnFinalize",
    )},
    **{name: _one(kind) for name, kind in {
        "aclrtDestroyContext": "context", "aclrtSetCurrentContext": "context", "aclrtDestroyStreamForce": "stream",
        "aclrtStreamQuery": "stream", "aclrtDestroyEvent": "event", "aclrtQueryEvent": "event",
        "aclrtQueryEventStatus": "event", "aclrtQueryEventWaitStatus": "event", "aclrtFreeHost": "host",
        "aclGetViewShape": "tensor", "aclGetViewStrides": "tensor", "aclGetStorageShape": "tensor",
        "aclGetViewOffset": "tensor", "aclGetFormat": "tensor", "aclGetDataType": "tensor",
        "aclGetRawTensorAddr": "tensor", "aclGetIntArraySize": "array", "aclDestroyScalar": "scalar",
        "aclDestroyTensorList": "list", "aclGetTensorListSize": "list", "aclDestroyBoolArray": "bools",
        "aclDestroyFloatArray": "floats", "aclGetBoolArraySize": "bools", "aclGetFloatArraySize": "floats",
        "aclDestroyScalarList": "scalars", "aclGetScalarListSize": "scalars",
    }.items()},
    "aclrtSynchronizeEvent": _one("event"),
    "aclrtCreateContext": lambda r, p: (r.choice((0, 0, 1)),),
    "aclrtCreateStreamWithConfig": lambda r, p: (0, r.choice((0, 1, 2**33))),
    "aclrtSynchronizeStreamWithTimeout": lambda r, p: (r.choice((None, _ref(r, "stream"))), r.choice((0, 5, -1, -2))),
    "aclrtSetStreamFailureMode": lambda r, p: (_ref(r, "stream"), r.choice((0, 1, 7))),
    "aclrtCreateEventWithFlag": lambda r, p: (r.choice((1, 8, 9, 0, 64)),),
    "aclrtCreateEventExWithFlag": lambda r, p: (r.choice((1, 8, 9, 0, 64)),),
    "aclrtRecordEvent": _on(_one("event")),
    "aclrtResetEvent": _on(_one("event")),
    "aclrtStreamWaitEvent": lambda r, p: (r.choice((None, _ref(r, "stream"))), _ref(r, "event")),
    "aclrtEventElapsedTime": lambda r, p: (_ref(r, "event"), _ref(r, "event")),
    "aclrtMallocHost": lambda r, p: (r.choice((1, 8, 4096, 0, -1, 2**62)),),
    "aclrtMallocAlign32": lambda r, p: (r.choice((1, 8, 4096, 0)), r.choice((0, 0x100, 99))),
    "aclrtMallocCached": lambda r, p: (r.choice((1, 8, 4096, 0)), r.choice((0, 7, -1))),
    "aclrtMemcpyAsync": _copy_later,
    "aclrtMemset": _fill,
    "aclrtMemsetAsync": _on(_fill),
    "aclrtGetMemInfo": lambda r, p: (r.choice((0, 1, 17, 99)),),
    "aclrtSetSysParamOpt": lambda r, p: (r.choice((0, 1, 2, 5)), r.choice((0, 1, 2, 3, 4, -1))),
    "aclrtGetSysParamOpt": lambda r, p: (r.choice((0, 1, 2, 5)),),
    "aclrtSetOpWaitTimeout": lambda r, p: (r.choice((0, 1, -1)),),
    "aclrtDeviceCanAccessPeer": lambda r, p: (0, r.choice((0, 1))),
    "aclrtDeviceEnablePeerAccess": lambda r, p: (1, 0),
    "aclrtSetExceptionInfoCallback": lambda r, p: (r.choice((None, repr, 7)),),
    "set_edition": lambda r, p: (r.choice(("9.2", "9.2", "8.0", "6.3", "10")),),
    "aclnnInit": lambda r, p: (None,),
    "aclInitTensor": lambda r, p: (_ref(r, "tensor"), *_tensor(r, p)),
    "aclSetRawTensorAddr": lambda r, p: (_ref(r, "tensor"), _ref(r, "address")),
    **{f"{spelled}Set{which}TensorAddr": _new_address for spelled in ("acl", "Acl") for which in ("", "Input", "Output")},
    **{f"aclSetDynamic{which}TensorAddr": lambda r, p: (_ref(r, "executor"), 0, 0, _ref(r, "list"), None)
       for which in ("", "Input", "Output")},
    "aclCreateScalar": lambda r, p: (r.choice((1, 2.5, "x", None, [1])), r.choice((0, 1, 9, 27, 99))),
    "aclCreateBoolArray": lambda r, p: (r.choice(([True], [], [1], np.array([True]))),),
    "aclCreateFloatArray": lambda r, p: (r.choice(([1.5, 2], [], ["x"], np.ones(3))),),
    "aclCreateTensorList": lambda r, p: ([_ref(r, "tensor"), _ref(r, "tensor")][: r.randrange(3)],),
    "aclCreateScalarList": lambda r, p: ([_ref(r, "scalar")],),
    "aclmdlLoadFromFile": lambda r, p: ("model.om",),
    "tensor_to_numpy": lambda r, p: (_ref(r, "tensor"),),
    "set_product": lambda r, p: (r.choice(("atlas-a2", "atlas-a2", "atlas-a2", "ascend950", "atlas-training", "host")),),
    "set_checks": lambda r, p: (r.choice(("off", "off", "off", "warn", "strict", "none")),),
    "aclFinalize": lambda r, p: (),
}  # fmt: skip


def _region_argument(rng: Random, page: Operator, parameter: Parameter, problem: problems.Regions) -> Any:
    role, boxes = parameter.role, problem.boxes
    attributes = {
        "pooled_height": problem.bins[0],
        "pooled_width": problem.bins[1],
        "input_shape": list(problem.input),
        "mode": rng.choice(("avg", "max", "avg", "max", "AVG", "")),
        "sampling_ratio": rng.choice((0, 0, 1, 2, 2, 50, 32768)),
        "spatial_scale": rng.choice((problem.attributes["spatial_scale"], 0.5, 1)),
        "aligned": rng.random() < 0.5,
    }
    if parameter.type != "tensor":
        return attributes[role]
    if role == "box_images":
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(boxes[:, 0], posinf=7, neginf=-7).clip(-9, 9).astype(np.int32)
    if role == "boxes":
        with np.errstate(over="ignore"):
            return boxes[:, 1:].astype(np.float32) if page.by_role("box_images") else boxes.astype(np.float32)
    has_cells = role == "input" or (role == "out" and page.gradient)
    shape = problem.input if has_cells else problem.output
    if rng.random() < 0.04:
        shape = tuple(rng.randint(1, 5) for _ in shape)
    return np.ones(shape, np.float32)


def _argument(rng: Random, page: Operator, parameter: Parameter, problem: Drawn) -> Any:
    """An array for a tensor, a list for an int array, or a number."""
    role = parameter.role
    if isinstance(problem, problems.Regions):
        return _region_argument(rng, page, parameter, problem)
    if parameter.type == "tensor":
        has_cells = role == "input" or (role == "out" and page.gradient)
        shape = problem.input if has_cells else problem.output
        if rng.random() < 0.04:
            shape = tuple(rng.randint(1, 5) for _ in problem.input)
        if role == "indices":
            kind = rng.choice((np.int32, np.int32, np.int64))
            return np.zeros(shape, kind) + kind(rng.choice((0, 0, 0, 10**6, -1)))
        return np.ones(shape, problems.FLOATS["float32" if problem.dtype == "float64" else problem.dtype])
    if role == "output_size":
        return list(problem.outputs)
    if parameter.type == "int_array":
        value = problem.attributes.get(PADDED[role], 1)
        return list(value) if isinstance(value, (tuple, list)) else [value]
    if role == "cube_math_type":
        return rng.choice((0, 0, 0, 1, 2, 3, 4))
    return problem.attributes.get(role) or 0


def _operator(rng: Random, program: Program) -> None:
    """The two phases of an operator on tensors that fit, most of the time."""
    page = documented()[rng.choice(list(documented()))]
    name = page.name
    pool = page.function.removesuffix("_backward")
    if page.regional:
        problem: Drawn = problems.draw_regions(rng, "roi_align")
    else:
        problem = problems.draw(rng, pool if pool in problems.POOLS else "max_pool2d", large=0)
    made = {"tensor": 0, "array": 0}
    given: list[Any] = []
    for parameter in page.parameters:
        value = _argument(rng, page, parameter, problem)
        if isinstance(value, (np.ndarray, list)):
            kind = "array" if isinstance(value, list) else "tensor"
            format = FORMATS[parameter.formats[0]] if kind == "tensor" else None
            program.steps.append(
                Step("aclCreateIntArray", (value,))
                if format is None
                else Step("tensor_from_numpy", (value, format))
            )
            given.append((kind, made[kind]))
            made[kind] += 1
        else:
            given.append(value)
    program.steps.append(
        Step(
            f"{name}GetWorkspaceSize",
            tuple(Ref(v[0], made[v[0]] - 1 - v[1]) if isinstance(v, tuple) else v for v in given),
        )
    )
    if rng.random() < 0.1:
        program.steps.append(_single(rng, program))
    if rng.random() < 0.2:
        name = rng.choice(list(documented()))
    program.steps.append(Step("aclrtMalloc", (rng.choice((64, 65536, 1 << 20)), 0)))
    size = rng.choice((Ref("size"), Ref("size"), Ref("size"), 0, 1 << 20, 2**64))
    stream = rng.choice((None, _ref(rng, "stream")))
    program.steps.append(
        Step(name, (rng.choice((Ref("address"), Ref("address"), None)), size, Ref("executor"), stream))
    )
    if rng.random() < 0.3:
        program.steps.append(_single(rng, program))
    program.steps.append(Step("aclrtSynchronizeStream", (stream,)))
