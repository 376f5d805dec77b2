"""Calls of CANN's sibling operators as data: a good call of each, and for each rule the changes that break it.

The calls follow from the parameters of the pages. What the pages say of products and dtypes is written here
a second time, so that a page that changes by mistake is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from calls import T, arguments
from pooltide.acl.phase_one import value_of
from pooltide.operators.call import Call
from pooltide.operators.catalog import documented
from pooltide.operators.pages import Operator, Parameter, Rule

A2, A23 = "atlas-a2", "atlas-a3 atlas-a2"
THREE = "FLOAT32 FLOAT16 BFLOAT16"
TWO = "FLOAT32 FLOAT16"
NARROW = {"atlas-inference": TWO, "atlas-training": TWO}

# products; dtypes of the values, on the products that differ, too; dtypes of indices
SIBLINGS: dict[str, tuple[str, dict[str, str], str]] = {
    "aclnnAvgPool2d": (f"{A23} atlas-inference atlas-training", {"": THREE, **NARROW}, ""),
    "aclnnAvgPool3d": (f"{A23} atlas-inference", {"": THREE, "atlas-inference": TWO}, ""),
    "aclnnAvgPool3dBackward": (A23, {"": THREE}, ""),
    "aclnnAdaptiveAvgPool2d": (f"{A23} atlas-inference atlas-training", {"": THREE, **NARROW}, ""),
    "aclnnAdaptiveAvgPool2dBackward": (f"{A23} atlas-inference atlas-training", {"": THREE, **NARROW}, ""),
    "aclnnAdaptiveAvgPool3d": (f"{A23} atlas-inference", {"": THREE, "atlas-inference": TWO}, ""),
    "aclnnAdaptiveMaxPool2d": (
        f"{A23} atlas-training",
        {"": f"{THREE} FLOAT64", "atlas-training": f"{TWO} FLOAT64"},
        "INT64",
    ),
    "aclnnAdaptiveMaxPool3d": (f"ascend950 {A23}", {"": THREE}, "INT32"),
    "aclnnMaxPool": (f"{A23} atlas-training", {"": TWO, "atlas-training": "FLOAT16"}, ""),
    "aclnnMaxPool2dWithIndices": (f"ascend950 {A23}", {"": THREE}, "INT32"),
    "aclnnMaxPool2dWithIndicesBackward": (f"ascend950 {A23}", {"": THREE}, "INT32"),
    "aclnnMaxPool3dWithArgmax": (f"ascend950 {A23}", {"": THREE}, "INT32"),
    "aclnnMaxPool3dWithArgmaxBackward": (f"ascend950 {A23}", {"": THREE}, "INT32"),
    "aclnnGlobalAveragePool": (
        f"{A23} atlas-inference atlas-training",
        {"": f"{THREE} FLOAT64"} | dict.fromkeys(NARROW, f"{TWO} FLOAT64"),
        "",
    ),
    "aclnnGlobalMaxPool": (f"{A23} atlas-inference atlas-training", {"": f"{TWO} FLOAT64"}, ""),
}

EIGHT = "FLOAT32 FLOAT16 INT16 INT32 INT64 INT8 UINT8 FLOAT64"
SIBLINGS |= {
    "aclnnMaxUnpool2d": (f"{A23} atlas-training", {"": EIGHT}, "INT32 INT64"),
    "aclnnMaxUnpool2dBackward": (
        f"{A23} atlas-training", {"": EIGHT.replace("FLOAT64", "BOOL")}, "INT32 INT64",
    ),
    "aclnnMaxUnpool3d": (f"{A23} atlas-training", {"": EIGHT}, "INT64"),
    "aclnnMaxUnpool3dBackward": (f"{A23} atlas-training", {"": EIGHT}, "INT64"),
    "aclnnMaxPool2dWithMask": (
        f"{A23} atlas-inference atlas-training",
        {"": THREE, "atlas-inference": "FLOAT32", "atlas-training": TWO}, "INT8",
    ),
    "aclnnMaxPool2dWithMaskBackward": (f"{A23} atlas-training", {"": THREE, "atlas-training": TWO}, "INT8"),
}  # fmt: skip

SIBLINGS |= {
    "aclnnRoiAlign": (f"{A23} atlas-inference atlas-training", {"": TWO}, "INT32"),
    "aclnnRoiAlignV2": (f"{A23} atlas-inference atlas-training", {"": TWO}, ""),
    "aclnnRoiAlignV2Backward": (f"{A23} atlas-training", {"": "FLOAT32"}, ""),
}

IMAGES, POOLED = (2, 3, 7, 11), (4, 3, 2, 5)  # of pools over 4 regions
PLANES = {2: (7, 11), 3: (7, 11, 13)}
ADAPTIVE = {2: (2, 5), 3: (2, 5, 3)}
STRIDED = {2: (4, 6), 3: (4, 6, 7)}  # of kernel 3, stride 2, padding 1
VALUES: dict[str, Any] = {
    "kernel": [3],
    "stride": [2],
    "padding": [1],
    "dilation": [1],
    "ceil_mode": False,
    "count_include_pad": True,
    "divisor_override": 0,
    "cube_math_type": 0,
    "auto_pad": 0,
    "pooled_height": POOLED[2],
    "pooled_width": POOLED[3],
    "input_shape": list(IMAGES),
    "spatial_scale": 0.5,
    "sampling_ratio": 2,
    "aligned": True,
    "mode": "avg",
}


def good(name: str, on: str = A2) -> dict[str, Any]:
    """A call that passes every rule of the operator, made from its page; of any documented operator."""
    page = documented()[name]
    axes = len(page.axes)
    small = {"strided": STRIDED[axes], "global": (1,) * axes}
    pooled = small.get(page.windows, ADAPTIVE[axes])
    found: dict[str, Any] = {}
    for parameter in page.parameters:
        if parameter.type == "tensor":
            has_cells = parameter.role in cell_roles(page)
            dtype = page.dtypes(parameter, on)[0]
            plane = PLANES[axes] if has_cells else pooled
            if page.masked and parameter.role == "indices":
                plane = (9, 96)  # cells of the kernel; bytes for 4 · 6 windows
            shape = _region_shape(page, parameter.role) if page.regional else (2, 3, *plane)
            found[parameter.name] = T(shape, dtype, parameter.formats[0])
        elif parameter.role == "output_size":
            found[parameter.name] = list(PLANES[axes] if page.unpool else pooled)
        else:
            value = VALUES[parameter.role]
            if parameter.type == "int_array" and not {1, 4} & set(parameter.lengths):
                value = value * axes
            found[parameter.name] = int(value) if parameter.type == "int64" else value
    if page.cube and on in NARROW:
        found["cubeMathType"] = 1
    return found


def _region_shape(page: Operator, role: str) -> tuple[int, ...]:
    if role in ("boxes", "box_images"):
        columns = 4 if page.by_role("box_images") else 5
        return (POOLED[0], columns) if role == "boxes" else (POOLED[0],)
    return IMAGES if role in cell_roles(page) else POOLED


def cell_roles(page: Operator) -> set[str]:
    """The tensors with the larger plane."""
    if page.unpool:
        return {"grad_output"} if page.gradient else {"out"}
    return {"input", "out"} if page.gradient else {"input"}


def call_of(name: str, values: dict[str, Any], on: str) -> Call:
    page = documented()[name]
    made = zip(page.parameters, arguments(name, values), strict=True)
    return Call(page, on, {p.name: value_of(p, argument) for p, argument in made})


# A change: new values of parameters; of a tensor, the fields that change.
Change = dict[str, Any]


def changed(values: dict[str, Any], *changes: Change) -> dict[str, Any]:
    """The call with all changes; the first change of a field counts."""
    found = dict(values)
    for change in reversed(changes):
        for name, value in change.items():
            is_fields = isinstance(value, dict) and found[name] is not None
            found[name] = replace(found[name], **value) if is_fields else value
    return found


def breaks(page: Operator, rule: Rule, on: str = A2) -> Iterator[tuple[Change, str]]:
    """Changes of the good call that break the rule, and a part of the sentence that says so."""
    values = good(page.name, on)
    tensors = {p.name: p for p in page.parameters if p.type == "tensor"}
    of = rule.arguments.get("of", ())
    yield from BREAKERS[rule.name](page, values, tensors, of, rule)


Tensors = dict[str, Parameter]
Given = tuple[Operator, dict[str, Any], Tensors, tuple[str, ...], Rule]
Broken = Iterator[tuple[Change, str]]


def _all(tensors: Tensors, **fields: Any) -> Change:
    return dict.fromkeys(tensors, fields)


def _not_null(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        what = page.parameter(name).type.replace("_", " ")
        yield {name: None}, f"{name} is null; it must be {'an' if what[0] == 'i' else 'a'} {what}."


def _dtype(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for group in dict.fromkeys(p.dtypes for p in tensors.values()):
        names = [n for n in of if tensors[n].dtypes == group]
        alike = {n: {"dtype": "UINT32"} for n, p in tensors.items() if p.dtypes == group}
        yield alike, f"{names[0]} has dtype UINT32; on Atlas A2 training/inference it must be "


def _format(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    unbatched = _unbatched(page, values, tensors)
    change = {name: {**unbatched.get(name, {}), "format": "FRACTAL_NZ"} for name in tensors}
    yield change, f"{of[0]} has format FRACTAL_NZ; it must be "


def _unbatched(page: Operator, values: Any, tensors: Tensors) -> Change:
    """Tensors without N, of operators that take them: some pages allow one format only with N."""
    batched = page.regional or page.windows == "global"
    return {} if batched else {n: {"shape": values[n].shape[1:]} for n in tensors}


def _same_dtype(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of[1:]:
        yield {name: {"dtype": "FLOAT16"}}, f"{name} has dtype FLOAT16; it must be FLOAT32, as {of[0]} has."


def _same_format(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    first, second, *_ = tensors[of[0]].formats
    for name in of[1:]:
        unbatched = _unbatched(page, values, tensors)
        change = unbatched | {name: {**unbatched.get(name, {}), "format": second}}
        yield change, f"{name} has format {second}; it must be {first}, as {of[0]} has."


def _rank(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    low, high = min(tensors[of[0]].ranks) - 1, max(tensors[of[0]].ranks) + 1
    for rank in (low, high):
        shape = (5,) * rank
        yield _all(tensors, shape=shape), f"{of[0]} has rank {rank}, shape ({', '.join('5' * rank)}); it must"


def _same_rank(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of[1:]:
        shapes = {n: (1, *values[n].shape[1:]) for n in tensors}
        cut = shapes[name][1:] if page.windows != "global" else shapes[name][:-1]
        change = {n: {"shape": cut if n == name else shape} for n, shape in shapes.items()}
        rank = len(cut)
        yield change, f"{name} has rank {rank}; it must be {rank + 1}, as {of[0]} has."


def _rank_format(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    rank, format = rule.arguments["rank"], rule.arguments["format"]
    other = next(f for f in tensors[of[0]].formats if f != format)
    shapes = {n: values[n].shape[-rank:] for n in tensors}
    change = {n: {"shape": shape, "format": other} for n, shape in shapes.items()}
    yield change, f"{of[0]} has rank {rank} and format {other}; with rank {rank} it must be {format}."


def _positive(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    which = "every spatial dimension" if rule.name == "positive_plane" else "every dimension"
    for name in of:
        for size in (0, -7):
            shape = (*values[name].shape[:2], size, *values[name].shape[3:])
            text = ", ".join(map(str, shape))
            alike = {n: {"shape": shape} for n in tensors if values[n].shape == values[name].shape}
            first = next(n for n in of if n in alike)
            yield alike, f"{first} has shape ({text}); {which} must be greater than 0."


def _lengths(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        yield {name: [1] * 7}, f"{name} has 7 values; it must have "
        if 0 not in page.parameter(name).lengths:
            yield {name: []}, f"{name} has 0 values; it must have "


def _values(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        parameter = page.parameter(name)
        least = parameter.least
        bad = [least - 1] * max(parameter.lengths[0], 1)
        text = ", ".join(map(str, bad))
        yield {name: bad}, f"{name} has values ({text}); each must be at least {least}."


def _only(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        value = rule.arguments["value"]
        if page.parameter(name).type == "int_array":
            yield {name: [value + 1]}, f"{name} has values ({value + 1}); on Atlas A2 training/inference each"
        else:
            yield (
                {name: value + 3},
                f"{name} is {value + 3}; on Atlas A2 training/inference it must be {value}.",
            )


def _padding(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    padding, kernel = (page.by_role(role) for role in ("padding", "kernel"))
    assert padding
    assert kernel
    last, axes = page.axes[-1].upper(), len(page.axes)
    for value in ([1] * (axes - 1) + [2], [1] * (2 * axes - 1) + [2]):
        if len(value) in padding.lengths:
            yield {padding.name: value}, f"{padding.name} is 2 on axis {last}; it must be at most 1, half of "


def _fits(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    kernel = page.by_role("kernel")
    assert kernel
    axis = page.axes[0].upper()
    yield (
        {kernel.name: [19]},
        f"self has length 7 on axis {axis}; with padding 1 a window of 19 cells must fit",
    )


def _result(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        shape = values[name].shape
        other = (*shape[:-2], shape[-1] + 1, shape[-2])
        texts = ["(" + ", ".join(map(str, s)) + ")" for s in (other, shape)]
        yield {name: {"shape": other}}, f"{name} has shape {texts[0]}; it must be {texts[1]}."


def _plane(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    large = (2, 3, 65536, 32770) if len(page.axes) == 2 else (2, 3, 2, 32768, 32768)
    cells = {n: {"shape": large} for n in tensors if values[n].shape == values["self"].shape}
    product = "·".join(page.axes).upper()
    yield cells, f"self has {product} = {prod(large[2:])}; it must be at most 2147483647."


def _same_shape(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of[1:]:
        shape = (*values[name].shape[:-2], *values[name].shape[:-3:-1])
        yield {name: {"shape": shape}}, f"{name} has shape ({', '.join(map(str, shape))}); it must be "


def _same_batch(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    pooled = [n for n in tensors if values[n].shape == values[of[1]].shape]
    shape = values[of[1]].shape
    yield (
        {n: {"shape": (2, 5, *shape[2:])} for n in pooled},
        f"{of[1]} has N, C = 2, 5; they must be 2, 3, as",
    )


def _forward(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    shape = values["gradOutput"].shape
    pooled = [n for n in tensors if values[n].shape == shape]
    other = (*shape[:-1], shape[-1] + 1)
    yield {n: {"shape": other} for n in pooled}, "gradOutput has plane"


def _unpooled(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        shape = (*values[name].shape[:-1], values[name].shape[-1] + 1)
        texts = ["(" + ", ".join(map(str, s)) + ")" for s in (shape, values[name].shape)]
        yield {name: {"shape": shape}}, f"{name} has shape {texts[0]}; it must be {texts[1]}."


def _mask(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for shape in ((2, 3, 9, 64), (2, 3, 8, 96), (2, 3, 96, 9)):
        text = ", ".join(map(str, shape))
        yield {"indices": {"shape": shape}}, f"indices has shape ({text}); it must be (2, 3, 9, 96)."


def _small(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    yield (
        {"outputSize": [3, 3]},
        "outputSize is (3, 3), a plane of 9 cells; it must have at least the 10 of self.",
    )


def _cube(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    yield {"cubeMathType": 4}, "cubeMathType is 4; it must be 0 to 3."
    yield {"cubeMathType": -1}, "cubeMathType is -1; it must be 0 to 3."


def _divisor(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    yield (
        {"divisorOverride": 256},
        "divisorOverride is 256; on Atlas inference it must be -255 to 255 (0: none).",
    )


def _writable(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        shape = (2, 3, *values[name].shape[2:])
        yield {name: {"strides": (0,) * len(shape)}}, f"{name} has shape"


def _boxes(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    boxes = page.by_role("boxes")
    assert boxes
    number = rule.arguments.get("columns", 5)
    for columns in (number - 1, number + 1):
        shape = (POOLED[0], columns)
        yield (
            {boxes.name: {"shape": shape}},
            f"{boxes.name} has shape (4, {columns}); it must be (K, {number}), ",
        )


def _images(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for sizes in ((0, 3, 7, 11), (2, -1, 7, 11), (2, 3, 0, 11), (2, 3, 7, -4), (2, 3, 65536, 32768)):
        text = f"is ({', '.join(map(str, sizes))}); "
        shape = {p.name: {"shape": sizes} for p in tensors.values() if p.role in cell_roles(page)}
        if page.by_role("input_shape"):
            yield shape | {"inputShape": list(sizes)}, f"inputShape {text}"
        else:
            yield shape, f"self {text}"


def _at_least(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    value = rule.arguments["value"]
    for name in of:
        yield {name: value - 1}, f"{name} is {value - 1}; it must be at least {value}."


def _positive_number(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        for value in (0.0, -1.0, float("nan"), float("inf")):
            yield {name: value}, f"{name} is {value}; it must be a finite number greater than 0."


def _one_of(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        yield {name: "AVG"}, f"{name} is 'AVG'; it must be avg or max."


def _sampling(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    yield {"samplingRatio": 32768}, "samplingRatio is 32768; it must be at most 32767."


def _same_rows(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of[1:]:
        yield (
            {name: {"shape": (7, *values[name].shape[1:])}},
            f"{name} has 7 rows; it must have 4, as {of[0]} has.",
        )


def _image_result(page: Operator, values: Any, tensors: Tensors, of: Any, rule: Rule) -> Broken:
    for name in of:
        text = f"{name} has shape (2, 3, 11, 7); it must be (2, 3, 7, 11), as inputShape says."
        yield {name: {"shape": (2, 3, 11, 7)}}, text


BREAKERS: dict[str, Any] = {
    "not_null": _not_null, "dtype_supported": _dtype, "format_supported": _format, "same_dtype": _same_dtype,
    "same_format": _same_format, "rank_supported": _rank, "same_rank": _same_rank,
    "rank_format": _rank_format, "positive_dimensions": _positive, "positive_plane": _positive,
    "array_lengths": _lengths, "array_values": _values, "only_value": _only,
    "padding_half_kernel": _padding, "window_fits": _fits, "result_shape": _result, "plane_at_most": _plane,
    "same_shape": _same_shape, "same_batch": _same_batch, "forward_shape": _forward,
    "unpooled_shape": _unpooled, "mask_shape": _mask, "plane_at_least_input": _small,
    "cube_math_type": _cube, "divisor_range": _divisor, "writable_once": _writable,
    "boxes_shape": _boxes, "image_sizes": _images, "at_least": _at_least, "one_of": _one_of,
    "positive_number": _positive_number, "sampling_range": _sampling, "same_rows": _same_rows,
    "pooled_shape": _result, "image_result": _image_result,
}  # fmt: skip

# Rules whose break always breaks a later rule too, as the shapes of the results depend on what is broken.
DRAGS = {
    "rank_supported", "same_rank", "array_lengths", "array_values", "positive_dimensions", "positive_plane",
    "padding_half_kernel", "window_fits", "plane_at_most", "only_value", "plane_at_least_input",
    "at_least", "image_sizes",
}  # fmt: skip
