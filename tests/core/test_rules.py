"""Every rule of every operator: an input that breaks it and no other, by status and message."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from calls import AVG2, AVG3, GOOD, MAX2, MAX3, T, arguments, good_for, phase_one, product, with_all
from pooltide import acl, aclnn
from pooltide.acl.phase_one import value_of
from pooltide.operators.call import Call
from pooltide.operators.catalog import documented, operator_named
from pooltide.operators.dtypes import STATUS
from pooltide.operators.pages import ASCEND_PRODUCTS, Operator
from pooltide.operators.rules import RULES, check
from siblings import SIBLINGS

pytestmark = pytest.mark.usefixtures("runtime")

NULL = STATUS["ACLNN_ERR_PARAM_NULLPTR"]
INVALID = STATUS["ACLNN_ERR_PARAM_INVALID"]
ALL3 = ("gradOutput", "self", "out")
ALL2 = ("gradOutput", "self", "gradInput")
ALLM = ("gradOutput", "self", "gradInput", "indices")
A2 = "Atlas A2 training/inference"

# operator, row of its table (None: our own rule), what is changed, the sentence, product
CASES: list[tuple[str, int | None, dict[str, Any], str, str]] = [
    # all operators
    *[(op, 1, {name: None}, f"{name} is null; it must be a tensor.", "")
      for op, call in GOOD.items() for name, value in call.items() if isinstance(value, T)],
    *[(op, 2, {}, "it is supported on Atlas A3 training/inference or Atlas A2 training/inference.", on)
      for op in (MAX2, MAX3) for on in ("ascend950", "atlas-200i-500-a2", "atlas-inference", "atlas-training")],
    *[(op, row, with_all(op, name, **{field: value}), f"{name} has {field} {value}; it must be {must}, as self has.", "")
      for op, row, name, field, value, must in (
          (AVG3, 4, "gradOutput", "dtype", "FLOAT16", "FLOAT32"),
          (AVG3, 4, "out", "dtype", "BFLOAT16", "FLOAT32"),
          (AVG3, 4, "gradOutput", "format", "ND", "NCDHW"),
          (AVG3, 4, "out", "format", "ND", "NCDHW"),
          (AVG2, 4, "gradOutput", "dtype", "FLOAT16", "FLOAT32"),
          (AVG2, 4, "gradInput", "dtype", "FLOAT16", "FLOAT32"),
          (MAX2, 3, "gradOutput", "dtype", "FLOAT16", "FLOAT32"),
          (MAX2, 3, "gradInput", "dtype", "FLOAT16", "FLOAT32"),
          (MAX2, 3, "indices", "format", "NCHW", "ND"),
          (MAX3, 3, "gradOutput", "dtype", "BFLOAT16", "FLOAT32"),
          (MAX3, 3, "gradInput", "format", "NCDHW", "ND"),
      )],
    *[(op, 3, with_all(op, *names, format=value), f"gradOutput has format {value}; it must be {must}.", "")
      for op, names, value, must in (
          (AVG3, ALL3, "NCHW", "NCDHW or ND"), (MAX2, ALLM, "NHWC", "ND, NCHW or NCL"), (MAX3, ALLM, "NCHW", "ND or NCDHW"),
      )],
    # aclnnAdaptiveAvgPool3dBackward
    (AVG3, 2, {}, "the operator is not supported on Ascend 950PR/950DT; it is supported on Atlas A3 "
     "training/inference, Atlas A2 training/inference, Atlas inference or Atlas training.", "ascend950"),
    (AVG3, 2, {}, "not supported on Atlas 200I/500 A2 inference", "atlas-200i-500-a2"),
    (AVG3, 3, with_all(AVG3, *ALL3, dtype="FLOAT64"),
     f"gradOutput has dtype FLOAT64; on {A2} it must be FLOAT32, FLOAT16 or BFLOAT16.", ""),
    (AVG3, 5, with_all(AVG3, *ALL3, shape=(7, 11, 13)),
     "gradOutput has rank 3, shape (7, 11, 13); it must have rank 4 or 5.", ""),
    (AVG3, 5, with_all(AVG3, *ALL3, shape=(1, 2, 3, 5, 7, 11)), "gradOutput has rank 6", ""),
    (AVG3, 5, with_all(AVG3, "gradOutput", shape=(3, 3, 5, 2))
     | with_all(AVG3, "self", "out", shape=(1, 3, 7, 11, 13)),
     "gradOutput has rank 4; it must be 5, as self has.", ""),
    (AVG3, 6, with_all(AVG3, "gradOutput", shape=(2, 3, 3, 0, 2)),
     "gradOutput has shape (2, 3, 3, 0, 2); every dimension must be greater than 0.", ""),
    (AVG3, 6, with_all(AVG3, "self", "out", shape=(2, 3, 7, -11, 13)),
     "self has shape (2, 3, 7, -11, 13); every dimension must be greater than 0.", ""),
    (AVG3, 7, with_all(AVG3, "out", shape=(2, 3, 7, 13, 11)),
     "out has shape (2, 3, 7, 13, 11); it must be (2, 3, 7, 11, 13), as self has.", ""),
    (AVG3, 7, with_all(AVG3, "gradOutput", shape=(2, 5, 3, 5, 2)),
     "gradOutput has N, C = 2, 5; they must be 2, 3, as self has.", ""),
    (AVG3, 7, with_all(AVG3, "gradOutput", shape=(3, 3, 3, 5, 2)),
     "gradOutput has N, C = 3, 3; they must be 2, 3, as self has.", ""),
    (AVG3, None, with_all(AVG3, "out", strides=(3003, 1001, 143, 13, 0)),
     "out has shape (2, 3, 7, 11, 13) and strides (3003, 1001, 143, 13, 0), which lets cells share "
     "memory; each cell must have its own element.", ""),
    # aclnnAvgPool2dBackward
    *[(AVG2, 1, {name: None}, f"{name} is null; it must be an int array.", "") for name in ("kernelSize", "padding")],
    (AVG2, 2, {}, "not supported on Atlas 200I/500 A2 inference", "atlas-200i-500-a2"),
    (AVG2, 3, with_all(AVG2, *ALL2, dtype="INT32"),
     f"gradOutput has dtype INT32; on {A2} it must be FLOAT32, FLOAT16 or BFLOAT16.", ""),
    (AVG2, 3, with_all(AVG2, *ALL2, dtype="BFLOAT16"),
     "gradOutput has dtype BFLOAT16; on Atlas inference it must be FLOAT32 or FLOAT16.", "atlas-inference"),
    (AVG2, 3, with_all(AVG2, *ALL2, dtype="BFLOAT16"),
     "gradOutput has dtype BFLOAT16; on Atlas training it must be FLOAT32 or FLOAT16.", "atlas-training"),
    (AVG2, 3, with_all(AVG2, "self", "gradInput", shape=(3, 7, 11))
     | with_all(AVG2, "gradOutput", shape=(3, 4, 6), format="ND"),
     "gradOutput has format ND; it must be NCHW or NCL.", ""),
    (AVG2, 3, with_all(AVG2, "self", "gradInput", shape=(3, 7, 11), format="NHWC")
     | with_all(AVG2, "gradOutput", shape=(3, 4, 6)),
     "self has format NHWC; it must be NCHW or NCL.", ""),
    (AVG2, 4, with_all(AVG2, "self", shape=(3, 7, 11)) | with_all(AVG2, "gradOutput", shape=(3, 4, 6))
     | with_all(AVG2, "gradInput", shape=(3, 7, 11), format="NCL"),
     "gradInput has format NCL; it must be NCHW, as self has.", ""),
    (AVG2, 5, with_all(AVG2, *ALL2, shape=(7, 11)) | with_all(AVG2, "gradOutput", shape=(4, 6)),
     "gradOutput has rank 2, shape (4, 6); it must have rank 3 or 4.", ""),
    (AVG2, 5, with_all(AVG2, "gradOutput", shape=(3, 4, 6))
     | with_all(AVG2, "self", "gradInput", shape=(1, 3, 7, 11)),
     "gradOutput has rank 3; it must be 4, as self has.", ""),
    (AVG2, 5, with_all(AVG2, "gradOutput", format="NCL"),
     "gradOutput has rank 4 and format NCL; with rank 4 it must be NCHW.", ""),
    (AVG2, 6, {"kernelSize": []}, "kernelSize has 0 values; it must have 1 or 2.", ""),
    (AVG2, 6, {"kernelSize": [3, 3, 3]}, "kernelSize has 3 values; it must have 1 or 2.", ""),
    (AVG2, 6, {"stride": [2, 2, 2]}, "stride has 3 values; it must have 0, 1 or 2.", ""),
    (AVG2, 6, {"padding": []} | with_all(AVG2, "gradOutput", shape=(2, 3, 3, 5)), "padding has 0 values; it must have 1 or 2.", ""),
    (AVG2, 6, {"kernelSize": [3, 0], "padding": [1, 0]}, "kernelSize has values (3, 0); each must be at least 1.", ""),
    (AVG2, 6, {"stride": [0]}, "stride has values (0); each must be at least 1.", ""),
    (AVG2, 6, {"padding": [1, -1]} | with_all(AVG2, "gradOutput", shape=(2, 3, 4, 4)), "padding has values (1, -1); each must be at least 0.", ""),
    (AVG2, 6, {"padding": [1, 2]} | with_all(AVG2, "gradOutput", shape=(2, 3, 4, 7)),
     "padding is 2 on axis W; it must be at most 1, half of kernelSize 3.", ""),
    (AVG2, 7, with_all(AVG2, *ALL2, shape=(0, 3, 7, 11)) | with_all(AVG2, "gradOutput", shape=(0, 3, 4, 6)),
     "gradOutput has shape (0, 3, 4, 6); every dimension must be greater than 0.", ""),
    (AVG2, 7, with_all(AVG2, *ALL2, shape=(2, -3, 7, 11)) | with_all(AVG2, "gradOutput", shape=(2, -3, 4, 6)),
     "gradOutput has shape (2, -3, 4, 6); every dimension must be greater than 0.", ""),
    (AVG2, 8, with_all(AVG2, "gradInput", shape=(2, 3, 11, 7)),
     "gradInput has shape (2, 3, 11, 7); it must be (2, 3, 7, 11), as self has.", ""),
    (AVG2, 8, with_all(AVG2, "gradOutput", shape=(2, 5, 4, 6)),
     "gradOutput has N, C = 2, 5; they must be 2, 3, as self has.", ""),
    (AVG2, 8, with_all(AVG2, "gradOutput", shape=(2, 3, 6, 4)),
     "gradOutput has plane (6, 4); the forward of self (2, 3, 7, 11) with kernel (3, 3), stride (2, 2), "
     "padding (1, 1), floor mode gives (4, 6), so it must be that.", ""),
    (AVG2, 8, {"kernelSize": [9], "padding": [0]},
     "kernelSize is (9, 9) with padding (0, 0); no window fits into self's plane (7, 11), and one must.", ""),
    (AVG2, 9, {"cubeMathType": 4}, "cubeMathType is 4; it must be 0 to 3.", ""),
    (AVG2, 9, {"cubeMathType": -1}, "cubeMathType is -1; it must be 0 to 3.", "ascend950"),
    (AVG2, 9, {"cubeMathType": 0},
     "cubeMathType is 0 (KEEP_DTYPE), which is not supported for FLOAT32 on Atlas inference; it must be "
     "1 or 2.", "atlas-inference"),
    (AVG2, 9, {"cubeMathType": 3} | with_all(AVG2, *ALL2, dtype="FLOAT16")
     | with_all(AVG2, "gradOutput", dtype="FLOAT16"),
     f"cubeMathType is 3 (USE_HF32), which is not supported for FLOAT16 on {A2}; it must be 0, 1 or 2.", ""),
    (AVG2, 10, {"divisorOverride": 256},
     "divisorOverride is 256; on Atlas inference it must be -255 to 255 (0: none).", "atlas-inference"),
    (AVG2, 10, {"divisorOverride": -256},
     "divisorOverride is -256; on Atlas training it must be -255 to 255 (0: none).", "atlas-training"),
    (AVG2, None, with_all(AVG2, "gradInput", strides=(231, 77, 10, 1)),
     "gradInput has shape (2, 3, 7, 11) and strides (231, 77, 10, 1), which lets cells share memory", ""),
    # aclnnAdaptiveMaxPool2dBackward
    (MAX2, 3, with_all(MAX2, *ALL2, dtype="FLOAT64"), "gradOutput has dtype FLOAT64", ""),
    (MAX2, 3, with_all(MAX2, "indices", dtype="INT16"),
     f"indices has dtype INT16; on {A2} it must be INT32 or INT64.", ""),
    (MAX2, 4, with_all(MAX2, *ALLM, shape=(7, 11)), "gradOutput has rank 2, shape (7, 11)", ""),
    (MAX2, 4, with_all(MAX2, "gradOutput", "indices", shape=(3, 2, 5))
     | with_all(MAX2, "self", "gradInput", shape=(1, 3, 7, 11)),
     "gradOutput has rank 3; it must be 4, as self has.", ""),
    (MAX2, 5, with_all(MAX2, "indices", shape=(2, 3, 5, 2)),
     "indices has shape (2, 3, 5, 2); it must be (2, 3, 2, 5), as gradOutput has.", ""),
    (MAX2, 5, with_all(MAX2, "gradInput", shape=(2, 3, 11, 7)),
     "gradInput has shape (2, 3, 11, 7); it must be (2, 3, 7, 11), as self has.", ""),
    (MAX2, 5, with_all(MAX2, "gradOutput", "indices", shape=(2, 7, 2, 5)),
     "gradOutput has N, C = 2, 7; they must be 2, 3, as self has.", ""),
    (MAX2, None, with_all(MAX2, "self", "gradInput", shape=(2, 3, -7, 11)),
     "self has shape (2, 3, -7, 11); every dimension must be at least 0.", ""),
    (MAX2, 6, with_all(MAX2, "self", "gradInput", shape=(2, 3, 65536, 32770)) |
     with_all(MAX2, "gradOutput", "indices", shape=(2, 3, 2, 5)),
     "self has H·W = 2147614720; it must be at most 2147483647.", ""),
    (MAX2, 7, with_all(MAX2, "self", "gradInput", shape=(2, 3, 4099, 4100)),
     "self has plane (4099, 4100), no multiple of gradOutput's (2, 5); then H·W = 16805900 must be at "
     "most 16777216.", ""),
    (MAX2, None, with_all(MAX2, "gradInput", strides=(0, 77, 11, 1)), "which lets cells share memory", ""),
    # aclnnAdaptiveMaxPool3dBackward
    (MAX3, 3, with_all(MAX3, "indices", dtype="INT64"),
     f"indices has dtype INT64; on {A2} it must be INT32.", ""),
    (MAX3, 4, with_all(MAX3, *ALLM, shape=(5, 7, 11)), "gradOutput has rank 3, shape (5, 7, 11)", ""),
    (MAX3, 4, with_all(MAX3, "gradOutput", "indices", shape=(3, 2, 5, 3))
     | with_all(MAX3, "self", "gradInput", shape=(1, 3, 5, 7, 11)), "gradOutput has rank 4; it must be 5", ""),
    (MAX3, 5, with_all(MAX3, "indices", shape=(2, 3, 2, 3, 5)), "indices has shape (2, 3, 2, 3, 5)", ""),
    (MAX3, 5, with_all(MAX3, "gradInput", shape=(2, 3, 5, 11, 7)), "gradInput has shape", ""),
    (MAX3, 5, with_all(MAX3, "gradOutput", "indices", shape=(7, 3, 2, 5, 3)), "gradOutput has N, C = 7, 3", ""),
    (MAX3, None, with_all(MAX3, "self", "gradInput", shape=(2, 3, 5, -7, 11)), "must be at least 0", ""),
    (MAX3, 6, with_all(MAX3, "self", "gradInput", shape=(2, 3, 2, 32768, 32768)),
     "self has D·H·W = 2147483648; it must be at most 2147483647.", ""),
    (MAX3, None, with_all(MAX3, "gradInput", strides=(1155, 385, 77, 1, 1)), "which lets cells share", ""),
]  # fmt: skip


def _call(operator: str, values: dict[str, Any], on: str) -> Call:
    page = operator_named(operator)
    made = zip(page.parameters, arguments(operator, values), strict=True)
    return Call(page, on, {p.name: value_of(p, argument) for p, argument in made})


@pytest.mark.parametrize(
    ("operator", "row", "change", "sentence", "on"),
    CASES,
    ids=[f"{c[0].removeprefix('aclnn')}-row{c[1]}-{i}" for i, c in enumerate(CASES)],
)
def test_each_rule_has_an_input_that_breaks_it_alone(
    operator: str, row: int | None, change: dict[str, Any], sentence: str, on: str
) -> None:
    on = on or "atlas-a2"
    values = good_for(operator, on) | change
    with product(on):
        size, executor, status, message = phase_one(operator, values)
    assert (size, executor) == (0, None)
    assert status == (NULL if row == 1 else INVALID)
    assert message is not None
    assert message.startswith(f"{operator}: ")
    assert sentence in message
    assert message.endswith(
        f" [{status} {'ACLNN_ERR_PARAM_NULLPTR' if row == 1 else 'ACLNN_ERR_PARAM_INVALID'}]"
    )

    call = _call(operator, values, on)
    first = check(call)
    assert first is not None
    assert first.row == row
    if row not in (1, 2):
        assert _broken_rows(call) == {(first.rule, row)}


def _broken_rows(call: Call) -> set[tuple[str, int | None]]:
    """Every rule that the call breaks, except rules that can't be evaluated on such a call."""
    broken = set()
    for rule in call.operator.rules:
        try:
            fault = RULES[rule.name](call, **rule.arguments)
        except (ValueError, IndexError, TypeError, KeyError, AssertionError, ArithmeticError):
            continue  # a rule may rely on the rules above it
        if fault is not None:
            broken.add((rule.name, rule.row))
    return broken


def _lacking(pages: Collection[Operator]) -> list[str]:
    """What these operators lack: a good call, the products that support them, a case for each rule."""
    broken = set()
    for operator, _, change, _, on in CASES:
        call = _call(operator, good_for(operator, on or "atlas-a2") | change, on or "atlas-a2")
        active = (rule for rule in call.operator.rules if call.product not in rule.skip)
        first = next(rule for rule in active if RULES[rule.name](call, **rule.arguments) is not None)
        broken.add((operator, call.operator.rules.index(first)))
    return [
        *(f"{page.name} has no good call" for page in pages if page.name not in GOOD),
        *(f"{page.name} has no row in SUPPORT" for page in pages if page.name not in SUPPORT),
        *(
            f"no case breaks rule {index} of {page.name}, {rule.name}"
            for page in pages
            for index, rule in enumerate(page.rules)
            if (page.name, index) not in broken
        ),
    ]


def test_every_documented_operator_has_a_good_call_and_a_case_for_each_rule() -> None:
    assert _lacking([documented()[name] for name in GOOD]) == []
    assert sorted([*GOOD, *SIBLINGS]) == list(documented())


def test_an_operator_or_a_rule_that_is_left_out_is_named() -> None:
    page = operator_named(MAX2)
    lacking = _lacking([replace(page, name="aclnnNew")])
    assert lacking[:2] == ["aclnnNew has no good call", "aclnnNew has no row in SUPPORT"]
    assert len(lacking) == 2 + len(page.rules)
    longer = replace(page, rules=(*page.rules, page.rules[0]))
    assert _lacking([longer]) == [f"no case breaks rule {len(page.rules)} of {MAX2}, not_null"]


# Calls that break two neighbouring rows at once: the answer is the earlier.
BOTH: list[tuple[str, int, int, dict[str, Any], str]] = [
    (AVG3, 1, 2, {"self": None}, "ascend950"),
    (AVG3, 2, 3, with_all(AVG3, *ALL3, dtype="INT8"), "ascend950"),
    (AVG3, 3, 4, with_all(AVG3, "self", dtype="INT8"), ""),
    (AVG3, 4, 5, with_all(AVG3, *ALL3, shape=(7, 11, 13)) | with_all(AVG3, "out", shape=(7, 11, 13), dtype="FLOAT16"), ""),
    (AVG3, 5, 6, with_all(AVG3, *ALL3, shape=(7, 0, 13)), ""),
    (AVG3, 6, 7, with_all(AVG3, "gradOutput", shape=(2, 5, 3, 0, 2)), ""),
    (AVG2, 1, 2, {"padding": None}, "atlas-200i-500-a2"),
    (AVG2, 2, 3, with_all(AVG2, *ALL2, dtype="INT8"), "atlas-200i-500-a2"),
    (AVG2, 3, 4, with_all(AVG2, "self", dtype="INT8"), ""),
    (AVG2, 4, 5, with_all(AVG2, *ALL2, shape=(7, 11)) | with_all(AVG2, "gradInput", shape=(7, 11), dtype="FLOAT16"), ""),
    (AVG2, 5, 6, with_all(AVG2, *ALL2, shape=(7, 11)) | {"kernelSize": [0]}, ""),
    (AVG2, 6, 7, with_all(AVG2, "gradOutput", shape=(0, 3, 4, 6)) | {"kernelSize": []}, ""),
    (AVG2, 7, 8, with_all(AVG2, "gradOutput", shape=(0, 3, 4, 6)), ""),
    (AVG2, 8, 9, with_all(AVG2, "gradOutput", shape=(2, 3, 6, 4)) | {"cubeMathType": 9}, ""),
    (AVG2, 9, 10, {"cubeMathType": 9, "divisorOverride": 999}, "atlas-inference"),
    *[case for op in (MAX2, MAX3) for case in (
        (op, 1, 2, {"indices": None}, "ascend950"),
        (op, 2, 3, with_all(op, "indices", dtype="INT8"), "ascend950"),
        (op, 3, 4, with_all(op, *ALLM, shape=(7, 11)) | with_all(op, "gradInput", shape=(7, 11), dtype="FLOAT16"), ""),
        (op, 4, 5, with_all(op, *ALLM, shape=(7, 11)) | with_all(op, "indices", shape=(11, 7)), ""),
    )],
    (MAX2, 5, 6, with_all(MAX2, "self", shape=(2, 3, 65536, 32770)), ""),
    (MAX3, 5, 6, with_all(MAX3, "self", shape=(2, 3, 2, 32768, 32768)), ""),
    (MAX2, 6, 7, with_all(MAX2, "self", "gradInput", shape=(2, 3, 65537, 32771)), ""),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "early", "late", "change", "on"), BOTH)
def test_a_call_that_breaks_two_rules_reports_the_earlier(
    operator: str, early: int, late: int, change: dict[str, Any], on: str
) -> None:
    on = on or "atlas-a2"
    call = _call(operator, good_for(operator, on) | change, on)
    fault = check(call)
    assert fault is not None
    assert fault.row == early, fault.text
    if early > 1:  # the rules after a null can't be evaluated
        rows = {row for _, row in _broken_rows(call)}
        assert late in rows or early in (4, 5), "the call must break the later row too"


def test_every_pair_of_neighbouring_rows_is_tried() -> None:
    tried = {(operator, early, late) for operator, early, late, _, _ in BOTH}
    for page in map(operator_named, GOOD):
        rows = sorted({rule.row for rule in page.rules if rule.row})
        assert {(page.name, *pair) for pair in itertools.pairwise(rows)} <= tried


SUPPORT = {
    AVG3: "atlas-a3 atlas-a2 atlas-inference atlas-training",
    AVG2: "ascend950 atlas-a3 atlas-a2 atlas-inference atlas-training",
    MAX2: "atlas-a3 atlas-a2",
    MAX3: "atlas-a3 atlas-a2",
}
FLOATS = {"FLOAT32", "FLOAT16", "BFLOAT16"}


@pytest.mark.parametrize("operator", GOOD)
@pytest.mark.parametrize("on", ASCEND_PRODUCTS)
def test_support_is_as_claimed_on_every_product(operator: str, on: str) -> None:
    with product(on):
        status, message = phase_one(operator, good_for(operator, on))[2:]
    assert (status == 0) == (on in SUPPORT[operator].split()), message
    assert (message is None) == (status == 0)


@pytest.mark.parametrize("operator", GOOD)
@pytest.mark.parametrize("on", ASCEND_PRODUCTS)
@pytest.mark.parametrize("dtype", ["FLOAT32", "FLOAT16", "BFLOAT16", "FLOAT64", "INT32", "INT8", "BOOL"])
def test_dtype_claims_hold_both_ways(operator: str, on: str, dtype: str) -> None:
    names = [n for n, v in GOOD[operator].items() if isinstance(v, T) and n != "indices"]
    narrow = on in ("atlas-inference", "atlas-training") and operator == AVG2
    works = on in SUPPORT[operator].split() and dtype in FLOATS - ({"BFLOAT16"} if narrow else set())
    with product(on):
        status = phase_one(operator, good_for(operator, on) | with_all(operator, *names, dtype=dtype))[2]
    assert status == (0 if works else INVALID)


@pytest.mark.parametrize("operator", [MAX2, MAX3])
@pytest.mark.parametrize("dtype", ["INT32", "INT64", "INT16", "UINT32", "FLOAT32"])
def test_index_dtype_claims_hold_both_ways(operator: str, dtype: str) -> None:
    works = dtype == "INT32" or (dtype == "INT64" and operator == MAX2)
    status = phase_one(operator, GOOD[operator] | with_all(operator, "indices", dtype=dtype))[2]
    assert status == (0 if works else INVALID)


# What cubeMathType 0…3 does, by product and dtype: k keeps, h rounds to HFLOAT32, f to FLOAT16,
# - is refused. The second word is for pooling that isn't global.
CUBE = {
    "atlas-a2": {"FLOAT32": "khfh khfh", "FLOAT16": "kkk- kkk-", "BFLOAT16": "kk-- kk--"},
    "atlas-a3": {"FLOAT32": "khfh khfh", "FLOAT16": "kkk- kkk-", "BFLOAT16": "kk-- kk--"},
    "ascend950": {"FLOAT32": "khfh kkkk", "FLOAT16": "kkk- kkkk", "BFLOAT16": "kk-- kkkk"},
    "atlas-inference": {"FLOAT32": "-ff- -ff-", "FLOAT16": "kkk- kkk-"},
    "atlas-training": {"FLOAT32": "-ff- -ff-", "FLOAT16": "kkk- kkk-"},
}
ACTIONS = {"k": "keep", "h": "HFLOAT32", "f": "FLOAT16"}


def test_padding_may_keep_a_window_from_holding_the_plane() -> None:
    """k = 8 spans a plane of 7, but a padding of 2 moves it: 1×1 outputs alone don't make it global."""
    values = GOOD[AVG2] | {"kernelSize": [8, 13], "padding": [2, 1], "stride": [9, 9], "cubeMathType": 1}
    with product("ascend950"):
        for self, rounding in (((2, 3, 7, 11), "keep"), ((2, 3, 6, 11), "HFLOAT32")):
            tensors = {"self": T(self, "FLOAT32", "NCHW"), "gradInput": T(self, "FLOAT32", "NCHW")}
            _, executor, status, message = phase_one(
                AVG2, values | tensors | {"gradOutput": T((2, 3, 1, 1), "FLOAT32", "NCHW")}
            )
            assert status == 0, message
            assert executor.work.executable.problem.rounding == rounding


@pytest.mark.parametrize(("on", "dtype"), [(p, d) for p, table in CUBE.items() for d in table])
@pytest.mark.parametrize("is_global", [True, False])
@pytest.mark.parametrize("value", range(4))
def test_cube_math_type_by_product_dtype_and_reach(on: str, dtype: str, is_global: bool, value: int) -> None:
    values = GOOD[AVG2] | with_all(AVG2, *ALL2, dtype=dtype) | {"cubeMathType": value}
    if is_global:
        values |= {"kernelSize": [7, 11], "padding": [0], "gradOutput": T((2, 3, 1, 1), dtype, "NCHW")}
    with product(on):
        _, executor, status, message = phase_one(AVG2, values)
    expected = CUBE[on][dtype].split()[0 if is_global else 1][value]
    if expected == "-":
        assert status == INVALID
        assert message is not None
        assert "cubeMathType" in message
    else:
        assert status == 0, message
        assert executor.work.executable.problem.rounding == ACTIONS[expected]


def test_a_null_stride_and_an_empty_one_mean_the_kernel() -> None:
    values = GOOD[AVG2] | {"gradOutput": T((2, 3, 3, 4), "FLOAT32", "NCHW"), "padding": [1]}
    for stride in (None, []):
        _, executor, status, message = phase_one(AVG2, values | {"stride": stride})
        assert status == 0, message
        assert [axis.s for axis in executor.work.executable.problem.axes[1:]] == [3, 3]


@pytest.mark.parametrize("value", [255, -255, 0])
def test_divisors_at_the_edge_of_the_range_are_accepted(value: int) -> None:
    with product("atlas-inference"):
        assert phase_one(AVG2, good_for(AVG2, "atlas-inference") | {"divisorOverride": value})[2] == 0


@pytest.mark.parametrize("value", [256, -(2**63), 2**63 - 1])
def test_other_products_take_any_divisor(value: int) -> None:
    assert phase_one(AVG2, GOOD[AVG2] | {"divisorOverride": value})[2] == 0


def test_a_plane_of_any_size_is_accepted_where_it_divides() -> None:
    big = with_all(MAX2, "self", "gradInput", shape=(2, 3, 4098, 5000))
    assert phase_one(MAX2, GOOD[MAX2] | big)[2] == 0


@pytest.mark.parametrize("operator", [MAX2, MAX3])
def test_empty_tensors_are_accepted_by_the_indexed_operators(operator: str) -> None:
    shape = (0, *GOOD[operator]["gradOutput"].shape[1:])
    inner = (0, *GOOD[operator]["self"].shape[1:])
    values = GOOD[operator] | with_all(operator, "gradOutput", "indices", shape=shape)
    assert phase_one(operator, values | with_all(operator, "self", "gradInput", shape=inner))[2] == 0


def test_a_bad_handle_is_refused_by_name() -> None:
    for wrong, what in ((7, "an int, 7"), ("x", "a str"), ([1], "a list"), (object(), "an object")):
        values = arguments(AVG2, GOOD[AVG2])
        values[1] = wrong
        assert aclnn.aclnnAvgPool2dBackwardGetWorkspaceSize(*values) == (0, None, INVALID)
        message = acl.aclGetRecentErrMsg()
        assert f"self is {what}; it must be a live aclTensor of aclCreateTensor." in message
