"""Every rule of the sibling operators: calls that break it, two rules at once, products, dtypes, nulls."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from calls import FORM, T, phase_one, product
from pooltide import acl, aclnn
from pooltide.operators.catalog import documented
from pooltide.operators.dtypes import STATUS
from pooltide.operators.pages import ASCEND_PRODUCTS, PRODUCTS, Operator, Rule
from pooltide.operators.rules import RULES, check
from siblings import A2, BREAKERS, DRAGS, SIBLINGS, breaks, call_of, changed, good

pytestmark = pytest.mark.usefixtures("runtime")

NULL, INVALID = STATUS["ACLNN_ERR_PARAM_NULLPTR"], STATUS["ACLNN_ERR_PARAM_INVALID"]
RULES_OF = [(name, at) for name in SIBLINGS for at in range(len(documented()[name].rules))]


def _place(page: Operator, rule: Rule) -> str:
    """A product on which the rule can be broken."""
    if rule.name == "product_supported":
        return "atlas-200i-500-a2"
    return "atlas-inference" if rule.name == "divisor_range" else A2


@pytest.mark.parametrize(("name", "at"), RULES_OF)
def test_each_rule_has_inputs_that_break_it(name: str, at: int) -> None:
    page = documented()[name]
    rule = page.rules[at]
    on = _place(page, rule)
    if rule.name == "product_supported":
        cases = [({}, f"the operator is not supported on {PRODUCTS[on]}; it is supported on ")]
    else:
        cases = list(breaks(page, rule, on))
    assert cases
    for change, sentence in cases:
        values = changed(good(name, on), change)
        with product(on):
            size, executor, status, message = phase_one(name, values)
        assert (size, executor, status) == (0, None, NULL if rule.name == "not_null" else INVALID), change
        assert message is not None
        assert FORM.fullmatch(message), message
        assert message.startswith(f"{name}: {sentence}"), message
        fault = check(call_of(name, values, on))
        assert fault is not None
        assert (fault.rule, fault.row) == (rule.name, rule.row)
        tied = _one_format_per_rank(page) and "format" in rule.name
        if rule.name not in DRAGS | {"not_null", "product_supported"} and not tied:
            assert _broken(name, values, on) == {at}


def _one_format_per_rank(page: Operator) -> bool:
    """Whether a wrong format is always wrong for the rank, too."""
    return sum(rule.name == "rank_format" for rule in page.rules) == 2


def _broken(name: str, values: dict[str, Any], on: str) -> set[int]:
    """The rules that the call breaks, except rules that can't be evaluated on such a call."""
    broken, call = set(), call_of(name, values, on)
    for at, rule in enumerate(call.operator.rules):
        try:
            if on not in rule.skip and RULES[rule.name](call, **rule.arguments) is not None:
                broken.add(at)
        except (ValueError, IndexError, TypeError, KeyError, AssertionError, ArithmeticError):
            continue
    return broken


def _pairs() -> list[tuple[str, int, int]]:
    """Neighbouring rules of different rows."""
    return [
        (name, early, late)
        for name in SIBLINGS
        for early, late in itertools.pairwise(range(len(documented()[name].rules)))
        if documented()[name].rules[early].row != documented()[name].rules[late].row
    ]


@pytest.mark.parametrize(("name", "early", "late"), _pairs())
def test_a_call_that_breaks_two_rules_reports_the_earlier(name: str, early: int, late: int) -> None:
    page = documented()[name]
    first, second = page.rules[early], page.rules[late]
    products = {_place(page, first), _place(page, second)} - {A2}
    on = products.pop() if products else A2
    changes = [
        next(breaks(page, rule, on))[0] for rule in (first, second) if rule.name != "product_supported"
    ]
    fault = check(call_of(name, changed(good(name, on), *changes), on))
    assert fault is not None
    assert (fault.rule, fault.row) == (first.name, first.row), fault.text


def test_every_rule_has_a_breaker() -> None:
    used = {rule.name for name in SIBLINGS for rule in documented()[name].rules}
    assert used - {"product_supported"} == set(BREAKERS)


@pytest.mark.parametrize("name", SIBLINGS)
@pytest.mark.parametrize("on", ASCEND_PRODUCTS)
def test_support_is_as_claimed_on_every_product(name: str, on: str) -> None:
    with product(on):
        status, message = phase_one(name, good(name, on))[2:]
    assert (status == 0) == (on in SIBLINGS[name][0].split()), message
    assert (message is None) == (status == 0)


@pytest.mark.parametrize("name", SIBLINGS)
@pytest.mark.parametrize("on", ASCEND_PRODUCTS)
def test_dtype_claims_hold_both_ways(name: str, on: str) -> None:
    products, floats, indices = SIBLINGS[name]
    page, values = documented()[name], good(name, on)
    for dtype in ("FLOAT32", "FLOAT16", "BFLOAT16", "FLOAT64", "INT32", "INT64", "INT8", "UINT8", "BOOL"):
        for group, known in (("float", floats.get(on, floats[""])), ("index", indices)):
            names = [
                p.name for p in page.parameters if (p.dtypes == "float") == (group == "float") and p.dtypes
            ]
            if not names:
                continue
            if group == "index" and on == "ascend950" and name == "aclnnAdaptiveMaxPool3d":
                known = "INT32 INT64"
            cube = {"cubeMathType": 1} if page.cube else {}
            with product(on):
                status = phase_one(name, changed(values, {n: {"dtype": dtype} for n in names}, cube))[2]
            works = on in products.split() and dtype in known.split()
            assert status == (0 if works else INVALID), (dtype, group, acl.aclGetRecentErrMsg())


@pytest.mark.parametrize("name", SIBLINGS)
def test_every_format_of_the_page_is_taken(name: str) -> None:
    page = documented()[name]
    for format in page.parameters[0].formats:
        values = good(name)
        with_n = [
            r.arguments["format"] for r in page.rules if r.name == "rank_format" and r.arguments["rank"] == 4
        ]
        if format == "NCL" or (with_n and format not in with_n):  # of tensors without N
            values |= {n: T(v.shape[1:], v.dtype, v.format) for n, v in values.items() if isinstance(v, T)}
        taken = {p.name for p in page.parameters if format in p.formats}
        alike = {n: {"format": format} for n, v in values.items() if isinstance(v, T) and n in taken}
        if format == "NHWC":
            for n in alike:
                *lead, c, h, w = values[n].shape
                alike[n]["shape"] = (*lead, h, w, c)
        assert phase_one(name, changed(values, alike))[2] == 0, (format, acl.aclGetRecentErrMsg())


@pytest.mark.parametrize("name", SIBLINGS)
def test_garbage_for_an_argument_is_refused_by_name(name: str) -> None:
    page, phase = documented()[name], getattr(aclnn, f"{name}GetWorkspaceSize")
    for at, parameter in enumerate(page.parameters):
        for wrong in (2.5, "x", object()):
            if parameter.type == "float" and wrong == 2.5:
                continue
            arguments = list(_made(name))
            arguments[at] = wrong
            assert phase(*arguments) == (0, None, INVALID)
            assert f"{name}: {parameter.name} is " in (acl.aclGetRecentErrMsg() or "")
        if parameter.type in ("tensor", "int_array"):
            arguments = list(_made(name))
            destroy = acl.aclDestroyTensor if parameter.type == "tensor" else acl.aclDestroyIntArray
            assert destroy(arguments[at]) == 0
            assert phase(*arguments) == (0, None, INVALID)
            assert f"{name}: {parameter.name} was destroyed" in (acl.aclGetRecentErrMsg() or "")


EXTREME = [0, 1, 2, 7, -1, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("name", documented())
def test_extreme_numbers_get_a_status_and_a_sentence(name: str) -> None:
    """Any sizes, strides and attributes: phase one answers by its rules, and phase two does not crash."""
    random = Random(name)
    statuses = set()
    for _ in range(150):
        values = dict(good(name))
        for chosen in random.choices(list(values), k=random.randint(1, 3)):
            values[chosen] = _extreme(random, values[chosen])
        _, executor, status, message = phase_one(name, values)
        statuses.add(status)
        assert status in (0, NULL, INVALID), (values, message)
        assert not status or FORM.fullmatch(message or ""), (values, message)
        if status == 0:
            assert getattr(aclnn, name)(None, 0, executor, None) in (0, NULL)
            acl.aclrtSynchronizeStream(None)
            assert "internal error" not in (acl.aclGetRecentErrMsg() or "")
    assert statuses == {0, NULL, INVALID}


def _extreme(random: Random, value: Any) -> Any:
    if isinstance(value, T):
        sizes = list(value.shape)
        at = random.randint(0, 4)
        sizes[at : at + 1] = [random.choice(EXTREME)]  # beyond the last: one more
        strides = tuple(random.choices(EXTREME, k=len(sizes)))
        longer = tuple(random.choices(EXTREME, k=random.randint(0, 9)))
        made = [replace(value, shape=shape) for shape in (tuple(sizes), longer)]
        return random.choice([*made, replace(value, strides=strides), value, None])
    if isinstance(value, list):
        return random.choice([None, random.choices(EXTREME, k=random.randint(0, 5)), value])
    return random.choice([*EXTREME, True, False])


def _made(name: str) -> list[Any]:
    from calls import arguments

    return arguments(name, good(name))


@pytest.mark.parametrize("name", [n for n in SIBLINGS if documented()[n].windows == "strided"])
def test_a_null_stride_and_an_empty_one_mean_the_kernel(name: str) -> None:
    page = documented()[name]
    stride, axes = page.by_role("stride"), len(page.axes)
    assert stride
    plane = {2: (3, 4), 3: (3, 4, 5)}[axes]  # of kernel 3, stride 3, padding 1
    values = good(name)
    pooled = [n for n, v in values.items() if isinstance(v, T) and v.shape != values["self"].shape]
    for empty in (None, []):
        change: dict[str, Any] = {n: {"shape": (2, 3, *plane)} for n in pooled} | {stride.name: empty}
        if page.masked:
            change["indices"] = {"shape": (2, 3, 9, 64)}
        _, executor, status, message = phase_one(name, changed(values, change))
        assert status == 0, message
        assert [axis.s for axis in executor.work.executable.problem.axes[3 - axes :]] == [3] * axes


def test_dilation_by_product() -> None:
    for name in ("aclnnMaxPool2dWithIndices", "aclnnMaxPool2dWithIndicesBackward"):
        values = good(name)
        pooled = [n for n, v in values.items() if isinstance(v, T) and v.shape != values["self"].shape]
        call = changed(values, {"dilation": [2]}, {n: {"shape": (2, 3, 3, 5)} for n in pooled})
        for on, status in (("ascend950", 0), ("atlas-a2", INVALID), ("atlas-a3", INVALID)):
            with product(on):
                assert phase_one(name, call)[2] == status, acl.aclGetRecentErrMsg()
